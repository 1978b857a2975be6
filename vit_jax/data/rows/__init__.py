"""Sources whose images come as rows: tables, Hugging Face data, shards.

tables         a source: tables of images and labels
table_files    the columns of a table, from its file
text_tables    tables of text: .csv, .tsv, .jsonl
arrow_folders  files of Hugging Face's `datasets`, on disk and on the hub
repositories   configurations and splits of Parquet files in a folder
arrow_tables   columns of Arrow and Parquet files
arrow_images   images in them
npz_tables     arrays of images and labels in .npz files
features       what the schema of such files says of columns
shards         a source: shards of WebDataset
shard_index    places of the files in .tar archives
table_labels   labels of rows: a class, several, or numbers
row_weights    weights of rows in the training loss
labelled_rows  what tables and shards share
"""

# What other packages import.
__all__ = (
  'arrow_folders',
  'row_weights',
  'shard_index',
  'shards',
  'table_files',
  'tables',
)
