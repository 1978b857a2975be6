"""What people look at: curves, plots, the page of a run.

report              the page of a run
curves              metrics to lines
plot                pictures of numbers
attention_pictures  pictures of attention and of the first layer
contact_sheet       images of a batch
"""
