"""Changes that remove graph breaks and recompiles, each tried against the unchanged program before it is told."""
