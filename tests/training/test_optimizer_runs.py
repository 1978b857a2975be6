"""Every optimizer trains on every mesh, as one device does block after block."""

import json

from processes import start
import pytest

from vit_jax.configs import common


@pytest.mark.slow
@pytest.mark.parametrize('optimizer', common.RULES['optimizer'].choices)
def test_every_optimizer_equals_one_device_on_every_mesh(
  optimizer, image_folder
):
  process = start('tests.optimizers', str(image_folder), optimizer, devices=8)
  out, err = process.communicate(timeout=1800)
  assert process.returncode == 0, err
  results = [json.loads(line) for line in out.splitlines()]
  assert len(results) == 24
  for result in results:
    assert result['loss'] < 1e-5, result
    # AdamW divides gradients of rounding errors by their own size.
    assert result['params'] < 1e-4, result
    assert not result['wrongly_moved'], result
    assert not result['wrongly_kept'], result
