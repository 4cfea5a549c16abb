"""What commands do once their options are read; imported when a command runs."""
