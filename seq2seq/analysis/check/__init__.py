"""What is odd about data, costs and results, in words."""
