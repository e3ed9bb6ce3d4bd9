"""The subcommands of `causerie-cli`, one file each: `add_parser` says what it takes, `run` does it."""
