"""The process and its machine: errors, files, devices, hosts, caches.

errors             `UserError`, which commands turn into one line
exits              the last line of a process, Ctrl-C
files              text and JSON files, written whole or not at all
workdir            where the files of a run lie, and its lock
official           names of the official code, and what replaces them
storage            folders and buckets as paths
download           downloads over HTTPS, resumed and shared between processes
hub_errors         what the Hugging Face hub refuses, in plain words
sharding           the mesh of devices; where parameters and batches lie on it
hosts              several processes that train as one
preemption         notices SIGTERM and Ctrl-C, so that a run saves first
environment        versions and hardware, for reports and `doctor`
compilation_cache  compiled programs, kept between processes
huge_pages         huge memory pages for XLA on CPUs
onednn             matrix products by oneDNN, where that is faster
processor          what the processor can do
"""

# What other packages import.
__all__ = (
  'compilation_cache',
  'download',
  'environment',
  'errors',
  'exits',
  'files',
  'hosts',
  'hub_errors',
  'huge_pages',
  'official',
  'onednn',
  'preemption',
  'sharding',
  'storage',
  'workdir',
)
