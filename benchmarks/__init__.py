"""Tables of the papers and speed comparisons; they run from a checkout and are not installed."""
