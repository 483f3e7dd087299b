# Command-line tools. Scripts are installed as they are.
dist_bin_SCRIPTS =
EXTRA_DIST += tools
