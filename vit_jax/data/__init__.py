"""Images: sources, host transforms, device augmentation, batches.

sources        labelled images by name or folder; stand-ins for planning
folder         image files in class folders
tables         tables of images and labels: a source
table_files    the columns of a table, from its file
arrow_folders  files of Hugging Face's `datasets`, on disk and on the hub
repositories   configurations and splits of Parquet files in a folder
arrow_tables   columns of Arrow and Parquet files
arrow_images   images in them
features       what the schema of such files says of columns
table_labels   labels of its rows: a class, several, or numbers
row_weights    weights of rows in the training loss
labelled_rows  what tables and shards share
shards         shards of WebDataset: a source
shard_index    places of the files in .tar archives
image_files    finds and reads image files
captions       images with captions
prepared       TFDS data sets
cifar          CIFAR-10 and CIFAR-100
splits         split notation, `train[:90%]`
unsplit        data sets without a test split
class_counts   images of each class
numbers        scale of numbers that images are labelled with
label_texts    labels for people
subsets        few shots, balanced classes
real_labels    ReaL labels of ImageNet
survey         what a data set has: counts, sizes, faults
copies         images that show the same
inputs         files, folders, addresses and arrays that users pass to predict
preprocessing  how an image becomes the input of a model: one record
decoding       files of images to pixels
transforms     host: crop, resize, flip
crops          crop geometry and sampling
randaugment    host: RandAugment
augment        device: crop, resize, flip, normalise
color_jitter   device: brightness, contrast, saturation, hue
mixing         device: mixup, CutMix, random erasing
text           texts to token ids: the table of tokenisers, BERT's
byte_pairs     CLIP's tokeniser
pieces         tokenisers of SentencePiece: LiT, SigLIP, SigLIP 2
token_ids      what tokenisers share
pipeline       batches on the host, by Grain
datasets       opens the splits of a config
batching       batches of a config on the devices
"""
