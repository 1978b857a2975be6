"""Pictures and pages: curves, plots, the page of a run, the demo.

report              the page of a run
model_card          the card of a model on the Hugging Face hub
examples            test images on the page of a run: scores, charts, examples
unsure_page         the page of the images that a model is least sure about
gallery             images with attention and captions, for the pages
pages               templates, filled
curves              metrics of a run to lines
plot                figures of numbers
attention_pictures  figures of attention and of the first layer
contact_sheet       images of a batch
colours             images of any number of channels as pictures
demo_page           the page that classifies a dropped image
"""

# What other packages import.
__all__ = (
  'attention_pictures',
  'colours',
  'contact_sheet',
  'curves',
  'demo_page',
  'model_card',
  'plot',
  'report',
  'unsure_page',
)
