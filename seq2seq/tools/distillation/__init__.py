"""One command from a config to a distilled model: plan, costs, record, runner and choice."""
