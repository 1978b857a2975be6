"""Programs that are measured in turns, each in a process of its own.

A slow minute of the machine then slows all of them, and no library's threads or memory
allocator slow another one. Each turn begins with a step whose time is not measured: the
first one after the turns of others is slower.
"""

from collections.abc import Callable, Sequence
import multiprocessing
from multiprocessing import connection
from typing import Any, Protocol, TypeVar

Case = TypeVar('Case', contravariant=True)


class Program(Protocol):
  """What a process measures."""

  def facts(self) -> dict[str, Any]:
    """Returns what is known of it besides its speed."""

  def run(self) -> None:
    """Does one step."""

  def seconds(self, steps: int) -> float:
    """Returns the time of one of `steps` steps that follow each other."""


def measure(
  make: Callable[[Case], Program],
  cases: Sequence[Case],
  turns: int,
  steps: int = 1,
) -> list[dict[str, Any]]:
  """Returns the `facts` of each case and its 'seconds' a step, one number a turn.

  Args:
    make: compiles a case; a function of a module, as processes import it.
    cases: what it takes, one at a time.
    turns: how often each program is measured.
    steps: measured steps of a turn.

  Raises:
    RuntimeError: if a process ended; it has printed why.
  """
  workers = []
  for case in cases:  # One after the other: compiling takes all cores.
    workers.append(_Worker(make, case))
    workers[-1].facts = workers[-1].answer()
  seconds: list[list[float]] = [[] for _ in cases]
  for _ in range(turns):
    for worker, times in zip(workers, seconds, strict=True):
      worker.connection.send(steps)
      times.append(worker.answer())
  for worker in workers:
    worker.connection.send(None)
    worker.process.join()
  return [
    {**worker.facts, 'seconds': times}
    for worker, times in zip(workers, seconds, strict=True)
  ]


class _Worker:
  """A process with a program."""

  def __init__(self, make: Callable[[Any], Program], case: Any):
    context = multiprocessing.get_context('spawn')
    self.connection, theirs = context.Pipe()
    self.facts: dict[str, Any] = {}
    self.process = context.Process(
      target=_work, args=(theirs, make, case), daemon=True
    )
    self.process.start()
    theirs.close()

  def answer(self) -> Any:
    try:
      return self.connection.recv()
    except EOFError:
      raise RuntimeError('A benchmarked program ended, see above.') from None


def _work(
  questions: connection.Connection, make: Callable[[Any], Program], case: Any
) -> None:
  program = make(case)
  program.run()
  questions.send(program.facts())
  while (steps := questions.recv()) is not None:
    program.run()
    questions.send(program.seconds(steps))
