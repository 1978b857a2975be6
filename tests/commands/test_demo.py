"""The demo page classifies images in a real browser."""

import shutil

import cv2
from golden_files import GOLDEN
from pictures import picture
from processes import wait_for
import pytest

import vit_jax
from vit_jax.reporting import demo_page
from vit_jax.runtime import errors

pytest.importorskip('gradio')
webdriver = pytest.importorskip('selenium.webdriver')
if not shutil.which('chromedriver'):
  pytest.skip('needs Chromium and its driver', allow_module_level=True)


@pytest.fixture(scope='module')
def predictor():
  return vit_jax.load(GOLDEN / 'vit_token.npz')


@pytest.fixture(scope='module')
def url(predictor):
  blocks = demo_page.page(predictor, 'Some <b>model</b>', top_k=3)
  yield demo_page.serve(
    blocks, host='127.0.0.1', port=None, max_mb=1, block=False
  )
  blocks.close()


@pytest.fixture(scope='module')
def browser():
  options = webdriver.ChromeOptions()
  for argument in ('--headless=new', '--no-sandbox', '--disable-gpu'):
    options.add_argument(argument)
  options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
  service = webdriver.ChromeService(shutil.which('chromedriver'))
  browser = webdriver.Chrome(options=options, service=service)
  browser.set_window_size(1200, 1000)
  yield browser
  browser.quit()


def upload(browser, url, path):
  browser.get(url)
  inputs = wait_for(
    lambda: browser.find_elements('css selector', 'input[type=file]')
  )
  inputs[0].send_keys(str(path))


def text_with(browser, wanted):
  def text():
    return browser.find_element('tag name', 'body').text

  wait_for(lambda: wanted in text())
  return text()


def test_a_dropped_image_is_classified(predictor, url, browser, tmp_path):
  assert url.startswith('http://127.0.0.1:')
  cv2.imwrite(str(tmp_path / 'x.png'), picture()[..., ::-1])
  upload(browser, url, tmp_path / 'x.png')
  [prediction] = predictor.predict(picture(), top_k=3)
  text = text_with(browser, prediction[0][0])
  for name, probability in prediction:
    assert name in text
    assert f'{probability:.0%}' in text
  # The dropped image, and its attention.
  shown = 'img[src*="/file="]'
  wait_for(lambda: len(browser.find_elements('css selector', shown)) > 1)
  severe = [x for x in browser.get_log('browser') if x['level'] == 'SEVERE']
  # Only files from elsewhere fail to load, without a network.
  assert not [x for x in severe if '127.0.0.1' in x['message']]


def test_too_large_images_are_refused(url, browser, tmp_path):
  path = tmp_path / 'x.bmp'
  cv2.imwrite(str(path), picture(0, 800, 800))
  assert path.stat().st_size > 1 << 20
  upload(browser, url, path)
  text_with(browser, 'exceed the maximum allowed size')


def test_models_without_head_are_refused():
  headless = vit_jax.load(GOLDEN / 'hf_vit_model')
  with pytest.raises(errors.UserError, match='have no head'):
    demo_page.page(headless, 'x')


def test_taken_port_is_named(url):
  port = int(url.rstrip('/').rpartition(':')[2])
  blocks = demo_page.page(vit_jax.load(GOLDEN / 'mixer.npz'), 'x')
  with pytest.raises(errors.UserError, match=f'port={port}'):
    demo_page.serve(blocks, host='127.0.0.1', port=port, max_mb=1, block=False)
