"""Where samples come from, and the names by which slime 0.4 hands them on."""
