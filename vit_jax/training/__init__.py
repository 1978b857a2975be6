"""A training run: its settings, steps, state, checkpoints and logs.

resolve        decides what a run will do: `Run`, from its config
tasks          `Task`: data, model, stages, evaluation of a run
outputs        what outputs mean: losses and metrics of classes and of numbers
contrastive    steps and evaluation of LiT
distillation   steps with a teacher
teachers       the teacher of a run: its weights and what it sees
stages         stages of a run, each with its own optimizer
update         one step, a pure function
optimizers     learning-rate schedules and optimizers
per_block      optimizers that see one block at a time
adapters       LoRA, by the settings of a run
freeze         frozen parameters, without gradient
state          `TrainState` and its checkpoints
same_data      facts about the data, compared when a run is resumed
start          checks, logs and files before the first step
loop           steps, evaluations, checkpoints
evaluate       evaluates the newest checkpoint
metrics        `metrics.jsonl`, progress bar and speed
loggers        TensorBoard, Weights & Biases, MLflow
profiler       traces of steps
out_of_memory  settings to try when memory runs out
"""

# What other packages import.
__all__ = (
  'adapters',
  'contrastive',
  'distillation',
  'evaluate',
  'loop',
  'metrics',
  'out_of_memory',
  'profiler',
  'resolve',
  'same_data',
  'stages',
  'start',
  'state',
  'tasks',
  'teachers',
)
