"""What a compiled program moves is counted."""

import pytest

from benchmarks import traffic
from vit_jax.planning import hlo

HLO = """HloModule jit_step

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %add.1 = f32[] add(%a, %b)
}

%all-reduce-scatter.3 (input: f32[64,8]) -> f32[16,8] {
  %input = f32[64,8]{1,0:T(8,128)} parameter(0)
  %all-reduce.9 = f32[64,8]{1,0:T(8,128)} all-reduce(%input), channel_id=7, to_apply=%add
  ROOT %slice = f32[16,8]{1,0} dynamic-slice(%all-reduce.9)
}

%condition (state: (s32[], f32[8])) -> pred[] {
  %limit = s32[]{:T(128)} constant(12)
  ROOT %less = pred[] compare(%index, %limit), direction=LT
}

%body (state: (s32[], f32[8])) -> (s32[], f32[8]) {
  %x = bf16[16,64]{1,0} parameter(0)
  %gather = bf16[64,64]{1,0} all-gather(%x), channel_id=1, dimensions={0}
  %again = bf16[64,64]{1,0} all-gather(%x), channel_id=1, dimensions={0}
  ROOT %t = (s32[], f32[8]) tuple(%i, %y)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %q = pred[3]{0} parameter(1)
  %loop = (s32[], f32[8]) while(%init), condition=%condition, body=%body
  %known = (s32[], f32[8]) while(%init), condition=%condition, body=%body.2, backend_config={"known_trip_count":{"n":"5"}}
  %fusion = f32[16,8]{1,0} fusion(%w), kind=kCustom, calls=%all-reduce-scatter.3
  %start = (f32[8]{0}, f32[32]{0}) all-gather-start(%p), channel_id=4, dimensions={0}
  ROOT %sum = (f32[8]{0}, pred[3]{0}) all-reduce(%p, %q), channel_id=5, to_apply=%add
}

%body.2 (state: (s32[], f32[8])) -> (s32[], f32[8]) {
  %y = f32[10]{0} parameter(0)
  %move = f32[10]{0} collective-permute(%y), channel_id=6
}
"""


def test_collectives_count_each_repetition():
  assert hlo.collectives(HLO) == {
    'all-gather': hlo.Moved(12 + 1, 12 * 64 * 64 * 2 + 32 * 4),
    'all-reduce': hlo.Moved(1, 8 * 4 + 3),
    'collective-permute': hlo.Moved(5, 5 * 10 * 4),
    'reduce-scatter': hlo.Moved(1, 64 * 8 * 4),
  }


GPU = """HloModule step

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %twice = f32[8]{0} add(%p, %p)
}

ENTRY %main (a: bf16[4,2], b: f32[8]) -> (f32[8], f32[8]) {
  %a = bf16[4,2]{1,0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %flat.1 = bf16[8]{0} bitcast(%a)
  %loop_add_fusion.1 = f32[8]{0} fusion(%b), kind=kLoop, calls=%fused
  %loop_add_fusion = f32[8]{0} fusion(%loop_add_fusion.1), kind=kLoop, calls=%fused
  %call.2 = (bf16[8]{0}, s8[64]{0}) custom-call(%flat.1, %b), custom_call_target="__cublas$lt$matmul"
  %part = bf16[8]{0} get-tuple-element(%call.2), index=0
  %wide = f32[8]{0} convert(%part)
  %sent = (f32[8]{0}, f32[8]{0}) copy-start(%wide)
  %received = f32[8]{0} copy-done(%sent)
  %looped = (f32[8]{0}, f32[8]{0}) while(%sent), condition=%less, body=%more
  ROOT %all = (f32[8]{0}, f32[8]{0}) tuple(%loop_add_fusion, %wide)
}
"""


def test_bytes_that_a_program_moves_are_counted_by_kind():
  assert hlo.moved(GPU) == {
    'loop_add_fusion': hlo.Moved(2, 2 * (32 + 32)),
    '__cublas$lt$matmul': hlo.Moved(1, 16 + 64 + 16 + 32),
    'wide': hlo.Moved(1, 32 + 16),
    'sent': hlo.Moved(1, 2 * 32 + 32),
  }
  assert traffic.gigabytes(hlo.moved(GPU)) == pytest.approx(
    {'products': 128e-9, 'attention': 0.0, 'rest': 272e-9}
  )
