"""The report: one HTML file without network or scripts, made of the blocks of what a command found."""
