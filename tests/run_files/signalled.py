"""tests/run_files/tiny.py, for a run that gets a signal after a certain step.

The process sends it to itself when the metrics of the step are written, so that it
comes there however busy the machine is. Later steps are slow: several processes need
up to a second to agree where they stop, and must not have ended before.
"""

import os
import pathlib
import runpy
import signal
import time

import jax
import ml_collections

from vit_jax.training import metrics


def get_config(argument: str) -> ml_collections.ConfigDict:
  """Takes FOLDER,SIGNAL,STEP or FOLDER,SIGNAL,STEP,PROCESS."""
  folder, name, step, *process = argument.split(',')
  write, sent = metrics.Writer.write, []

  def write_and_signal(self, now, values):
    write(self, now, values)
    is_this = not process or int(process[0]) == jax.process_index()
    if now == int(step) and is_this and not sent:
      sent.append(name)
      os.kill(os.getpid(), signal.Signals[name])
    elif sent:
      time.sleep(0.5)

  metrics.Writer.write = write_and_signal
  tiny = pathlib.Path(__file__).with_name('tiny.py')
  return runpy.run_path(str(tiny))['get_config'](folder)
