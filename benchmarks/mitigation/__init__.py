"""What the likelihood compilers do to real pretrained judges, on items that nothing was fitted to or chosen on."""
