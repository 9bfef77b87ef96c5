"""GLUE: every task whose files are there, the paper's table, and the leaderboard's zip file."""
