"""Tables and plots of the measurements."""
