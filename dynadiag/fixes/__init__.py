"""Changes that remove graph breaks and recompiles. Each is tested against the unchanged program first."""
