"""What people ask for: a task joins data, model and metric; a recipe says which."""
