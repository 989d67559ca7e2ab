"""The command line: one short module per subcommand; absl flags are defined only here."""
