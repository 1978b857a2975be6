"""Images: sources, host transforms, device augmentation, batches.

datasets       opens the splits of a config
sources        labelled images by name, folder or table
stand_ins      sources without images, for planning
folder         a source: image files in class folders
rows           sources whose images come as rows: tables, Hugging Face, shards
prepared       a source: TFDS data sets
cifar          a source: CIFAR-10 and CIFAR-100
captions       a source: images with captions
splits         split notation, `train[:90%]`
unsplit        data sets without a test split
subsets        few shots, balanced classes
class_counts   images of each class
class_names    names of classes, compared and ordered
wordnet        names of ImageNet's classes
numbers        scale of numbers that images are labelled with
label_texts    labels for people
real_labels    ReaL labels of ImageNet
survey         what a data set has: counts, sizes, faults
copies         images that show the same
stacks         arrays, .npy files and TIFFs of any number of channels
pixel_values   channels and depth of a data set, mean and standard deviation
image_files    finds and reads image files
decoding       files of images to pixels
inputs         files, folders, addresses and arrays that users pass to predict
preprocessing  how an image becomes the input of a model: one record
augmentation   crops, flips, colours and mixing, on the host and the device
texts          texts to token ids
pipeline       batches on the host, by Grain
workers        threads and processes that read them
batching       batches of a config on the devices
"""

# What other packages import.
__all__ = (
  'augmentation',
  'batching',
  'captions',
  'class_counts',
  'class_names',
  'copies',
  'datasets',
  'decoding',
  'image_files',
  'inputs',
  'label_texts',
  'numbers',
  'pipeline',
  'prepared',
  'preprocessing',
  'real_labels',
  'rows',
  'sources',
  'splits',
  'stand_ins',
  'subsets',
  'survey',
  'texts',
  'wordnet',
)
