"""A run: what it starts from, its steps, its state, what it logs.

resolve        decides what a run will do: `Run`, from its config
tasks          `Task`: data, model, stages, evaluation of a run
contrastive    steps and evaluation of LiT
stages         stages of a run, each with its optimizer
update         one step, a pure function
optimizers     learning-rate schedules and optimizers
freeze         parameters without gradient
state          `TrainState` and its checkpoints
start          checks, logs and files before the first step
loop           steps, evaluations, checkpoints
evaluate       evaluates the newest checkpoint
metrics        where numbers go
loggers        TensorBoard, Weights & Biases, MLflow
profiler       traces of steps
out_of_memory  advice when memory is short
"""
