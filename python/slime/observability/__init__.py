"""What a run tells of itself, for users' functions: spans of samples, timers, numbers for the log."""
