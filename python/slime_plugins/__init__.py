"""Names under which published scripts and generators ask for parts of slime."""
