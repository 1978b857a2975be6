"""Learning-rate schedules."""

import json

from golden_files import golden_json
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.training import optimizers

SCHEDULES = golden_json('learning_rates.json')


@pytest.mark.parametrize('arguments', SCHEDULES)
def test_learning_rates_equal_official_code(arguments):
  schedule = optimizers.create_learning_rate_schedule(**json.loads(arguments))
  for step, want in SCHEDULES[arguments].items():
    got = schedule(jnp.array(int(step)))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-9, err_msg=step)


def test_rsqrt_schedule_cools_down_to_zero():
  schedule = optimizers.create_learning_rate_schedule(
    1000, 0.8, 'rsqrt', 100, timescale=50, cooldown_steps=200
  )
  got = [float(schedule(step)) for step in (50, 100, 150, 250, 800, 900, 1000)]
  want = [0.4, 0.8, 0.8 / 2**0.5, 0.4, 0.8 / 15**0.5, 0.4 / 17**0.5, 0]
  np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-9)


def test_linear_schedule_never_rises_after_the_warm_up():
  schedule = optimizers.create_learning_rate_schedule(100, 1e-6, 'linear', 10)
  got = [float(schedule(step)) for step in (10, 50, 100)]
  np.testing.assert_allclose(got, 1e-6, rtol=1e-5)


def test_constant_schedule_keeps_peak_after_warm_up():
  schedule = optimizers.create_learning_rate_schedule(100, 0.5, 'constant', 10)
  assert [float(schedule(s)) for s in (5, 10, 99)] == [0.25, 0.5, 0.5]
