"""GLUE: fine-tuning on every available task, the paper's table, the leaderboard's zip file."""
