"""Images: sources, host transforms, device augmentation, batches."""
