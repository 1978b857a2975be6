"""Images: sources, host transforms, device augmentation, batches.

sources        labelled images by name or folder, at random access
folder         image files in class folders
image_files    suffixes that are read, files that are not
captions       images with captions
cifar          CIFAR-10 and CIFAR-100
stand_in       a data set that is not here, for planning
splits         split notation, `train[:90%]`
subsets        few shots, balanced classes
dataset        the training and test split of a config, opened once
real_labels    ReaL labels of ImageNet
inputs         files, folders, addresses and arrays that people pass to predict
preprocessing  how an image becomes the input of a model: one record
transforms     host: decode, crop, resize, flip
windows        crop geometry and sampling
randaugment    host: RandAugment
augment        device: crop, resize, flip, normalise
color_jitter   device: brightness, contrast, saturation, hue
mixing         device: mixup, CutMix, random erasing
text           texts to token ids
pipeline       batches on the host, by Grain
batching       batches on the devices, for a config
"""
