"""What the Hugging Face hub refuses, in one line that says what to try."""

from collections.abc import Iterator
import socket
import ssl

from huggingface_hub import constants
from huggingface_hub import errors as library_errors

from vit_jax.runtime import errors

# What the network raises, whichever HTTP client `huggingface_hub` has.
_NETWORK = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
_LOG_IN = 'log in with `hf auth login`, or set HF_TOKEN to a token'


def explain(error: Exception, repository: str, *, writes: bool = False) -> str:
  """Returns why a call of `huggingface_hub` failed, and what to try.

  Args:
    error: what it raised.
    repository: its path on the hub, 'USER/NAME' or 'datasets/USER/NAME'.
    writes: whether the call was to change the repository.
  """
  found = list(_chain(error))
  for x in found:
    if isinstance(x, library_errors.HfHubHTTPError):
      return _refusal(x, repository, 'write to' if writes else 'read')
    if isinstance(x, library_errors.OfflineModeIsEnabled):
      return _offline(writes)
    if isinstance(x, library_errors.HFValidationError):
      return f'{repository!r} is not USER/NAME of a repository.'
  for x in found:
    if isinstance(x, _NETWORK):
      return (
        f'{constants.ENDPOINT} cannot be reached: {errors.first_line(x)}. Check'
        f' the network; HF_ENDPOINT names a mirror.'
      )
  return f'{errors.first_line(found[-1])}.'


def _chain(error: BaseException | None) -> Iterator[BaseException]:
  """Yields an error and what caused it."""
  while error is not None:
    yield error
    error = error.__cause__ or error.__context__


def _refusal(
  error: library_errors.HfHubHTTPError, repository: str, verb: str
) -> str:
  page = f'{constants.ENDPOINT}/{repository}'
  status = error.response.status_code
  log_in = f'{_LOG_IN} that may {verb} it'
  if isinstance(error, library_errors.GatedRepoError):
    return f'its owner must give you access. Ask at {page}, and {log_in}.'
  if isinstance(error, library_errors.RevisionNotFoundError):
    return f'it has no such branch, tag or commit. See {page}/tree/main.'
  if isinstance(error, library_errors.RepositoryNotFoundError) or status == 404:
    return (
      f'there is no such repository, or it is private. Check the name at {page};'
      f' for a private one {log_in}.'
    )
  said = ' '.join((error.server_message or '').split())
  answer = f'the hub answers {status}{": " * bool(said)}{said.rstrip(".")}.'
  if status in (401, 403):
    return f'{answer} {log_in[0].upper()}{log_in[1:]}.'
  return f'{answer} Try again later.'


def _offline(writes: bool) -> str:
  what, other = 'nothing is uploaded', ''
  if not writes:
    what = 'it was not downloaded before'
    other = ', or give a folder that has its files'
  return f'HF_HUB_OFFLINE is set, and {what}. Unset it{other}.'
