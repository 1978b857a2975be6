"""Run files are found by path, and by name wherever one is."""

from golden_files import REPOSITORY
from processes import call_command
import pytest

import vit_jax
from vit_jax.configs import run_files
from vit_jax.runtime import errors


@pytest.mark.parametrize(
  'value',
  ['digits', 'digits.py', 'configs/digits.py', 'configs/digits', './digits.py'],
)
def test_names_and_official_paths_are_found_anywhere(
  value, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  assert run_files.find(value) == str(REPOSITORY / 'configs' / 'digits.py')
  with_argument = f'{REPOSITORY}/configs/digits.py:b16,/images'
  assert run_files.find(f'{value}:b16,/images') == with_argument


def test_a_file_that_is_here_comes_first(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'configs').mkdir()
  (tmp_path / 'configs' / 'digits.py').write_text('')
  assert run_files.find('configs/digits.py:x') == 'configs/digits.py:x'
  assert run_files.find('/elsewhere/digits.py') == '/elsewhere/digits.py'
  assert run_files.find('nothing.py') == 'nothing.py'


def test_run_file_returns_its_config(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  config = vit_jax.run_file('finetune_mini', '/images')
  assert (config.pretrained, config.dataset) == ('ViT-Mini_8', '/images')
  with pytest.raises(errors.UserError, match="'digitz'. Did you mean digits?"):
    vit_jax.run_file('digitz')


@pytest.mark.parametrize(
  'file, message',
  [
    ('vit', 'a data set such as vit.py:b16,cifar10,'),
    ('sweep', 'a data set such as sweep.py:b16,cifar10,'),
    ('pretrain', 'a data set such as pretrain.py:b16,imagenet2012,'),
    ('pretrain_augreg', 'a data set such as .*_augreg.py:s16,imagenet2012,'),
    ('folder', 'a folder such as folder.py:b16,/path/to/data,'),
    ('lit_folder', 'a folder such as lit_folder.py:lit_l16ti,/path/to/data,'),
  ],
)
def test_an_argument_without_data_is_refused(file, message):
  message = f"configs/{file}.py needs a model and {message} not 'b16'."
  with pytest.raises(ValueError, match=message):
    vit_jax.run_file(file, 'b16')


def test_lit_folder_refuses_a_model_without_a_text_tower():
  with pytest.raises(ValueError, match="trains a LiT such as .*, not 'b16'."):
    vit_jax.run_file('lit_folder', 'b16,/path/to/data')


def test_commands_take_names(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  words = ('--workdir=run', '--config.total_steps=0')
  result = call_command('train', '--config=digits', *words)
  assert 'config.total_steps is 0, must be at least 1' in result.stderr
  result = call_command('train', '--config=digitz', *words)
  assert result.returncode == 1
  assert 'Did you mean digits? The package has augreg, ' in result.stderr
  assert not list(tmp_path.iterdir())


def test_few_names_are_public():
  assert set(dir(vit_jax)) == {'__version__', 'load', 'run_file'}
