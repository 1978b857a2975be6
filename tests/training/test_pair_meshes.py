"""CLIP, SigLIP and DINOv2 learn on eight devices what they learn on one."""

import json

from processes import run
import pytest


@pytest.mark.slow
def test_eight_devices_equal_one_and_share_the_parameters():
  result = run('tests.pair_meshes', 'all', devices=8, PYTHONPATH='.:tests')
  assert result.returncode == 0, result.stderr
  for name, meshes in json.loads(result.stdout.splitlines()[-1]).items():
    # Another order of summation gives up to 2e-4, depending on the processor.
    assert meshes['all']['far'] < 1e-3, name
    assert meshes['all']['all'] < 0.5, name
    # Over the axis fsdp, of two devices.
    assert meshes['all'].get('texts', 0.5) == 0.5, name
