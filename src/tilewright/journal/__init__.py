"""What was tried: experiments with their measurements and verdicts, kept beside the results they came from.

`Experiment` is one of them, `Journal` the file, `judge` what its figures say; `apply` lets a plan learn from them.
"""

from tilewright.journal.experiment import Experiment, Recorded
from tilewright.journal.journal import Journal
from tilewright.journal.judge import Judgement, judge

__all__ = ["Experiment", "Journal", "Judgement", "Recorded", "judge"]
