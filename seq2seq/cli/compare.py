"""`seq2seq compare`: variants to a table and pictures."""

import argparse
import json
import shlex

from seq2seq.cli.streams import check_output, open_output, say
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.process_group import world_size


def compare(options: argparse.Namespace) -> int:
    """Train what is not trained yet, score all of it, and tell."""
    if world_size() > 1:
        raise UserError("compare runs in one process; start it without torchrun")
    check_output(options.json, *options.configs)
    from seq2seq.analysis.compare.variants import read_plan

    plan = read_plan(options.configs, options.overrides, options.seeds, options.output)
    check_output(
        options.json, *(path for each in plan.variants for path in each.config.data.paths())
    )
    for note in plan.notes:
        say(f"note: {note}")
    from seq2seq.analysis.compare.compare import check, score_all, train_all
    from seq2seq.cli import compare_report
    from seq2seq.cli.compare_figure import write_pictures
    from seq2seq.training.loop import Interrupted

    task = check(plan, options.split, options.device, options.beam, options.lowercase)
    try:
        train_all(plan, options.device)
        result = score_all(plan, task)
    except (Interrupted, KeyboardInterrupt) as stop:
        say(f"Go on with: seq2seq {shlex.join(options.given)}")
        return stop.exit_code if isinstance(stop, Interrupted) else 130
    if options.json is not None:
        with open_output(options.json) as output:
            output.write(json.dumps(compare_report.as_json(result), indent=2) + "\n")
    if options.json is None or str(options.json) != "-":
        with open_output(None) as output:
            output.write(compare_report.as_text(result) + "\n")
    for line in write_pictures(result):
        say(line)
    return 0
