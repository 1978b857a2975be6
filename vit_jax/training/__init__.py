"""A run: what it starts from, its steps, its state, what it logs.

resolve         decides what a run will do: `Run`, from its config
tasks           the task of a config
task            `Task`: data, model, stages, evaluation
classification  task: one class an image
contrastive     task: texts that fit images (LiT)
stages          stages of a run, each with its optimizer
update          one step, a pure function
optimizers      learning-rate schedules and optimizers
freeze          parameters without gradient
state           `TrainState` and its checkpoints
start           checks and logs before the first step
loop            steps, evaluations, checkpoints
finish          writes the artifacts
evaluate        evaluates the newest checkpoint
resume          what must not change while a run is resumed
metrics         where numbers go
loggers         TensorBoard, Weights & Biases, MLflow
profiler        traces of steps
out_of_memory   advice when memory is short
"""
