"""Models of a user's own data: from files to verdicts, for the command line and the server."""
