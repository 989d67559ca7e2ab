"""HLO texts as compilers print them, for test_hlo.py: cut down, names and attributes kept.

Those named after a compiler were printed by it for small programs on 8 devices; `by_hand` are
forms that XLA's printer has and none of those programs showed.
"""

# ruff: noqa: E501 (the lines are as long as compilers print them)

from __future__ import annotations

# jax 0.10.2, mesh e=2, d=4: psum over e, the rest over d. all-to-all has an operand per peer, and
# bf16 travels as f32.
CPU_KINDS = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

FileNames
1 "sample.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=17 end_column=17}

%region_0.0 (psum.0: f32[], psum.1: f32[]) -> f32[] {
  %psum.0 = f32[] parameter(0), metadata={op_name="psum"}
  %psum.1 = f32[] parameter(1), metadata={op_name="psum"}
  ROOT %add.0 = f32[] add(%psum.0, %psum.1), metadata={op_name="add"}
}

%fused_computation (param_0: bf16[2,8]) -> f32[1,2,8] {
  %param_0 = bf16[2,8]{1,0} parameter(0)
  %convert.1 = f32[2,8]{1,0} convert(%param_0)
  ROOT %bitcast.1 = f32[1,2,8]{2,1,0} bitcast(%convert.1)
}

ENTRY %main.0_spmd (param.2: f32[16,8], param.3: bf16[2,8]) -> (f32[16,8], f32[4,2,8], f32[4,8], (f32[4,8], f32[4,8], f32[4,8], f32[4,8]), f32[16,8]) {
  %param.2 = f32[16,8]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}, metadata={op_name="x"}
  %param.3 = bf16[2,8]{1,0} parameter(1), sharding={devices=[8,1]<=[8]}, metadata={op_name="y"}
  %part.0 = f32[4,8]{1,0} slice(%param.2), slice={[0:4], [0:8]}
  %part.1 = f32[4,8]{1,0} slice(%param.2), slice={[4:8], [0:8]}
  %part.2 = f32[4,8]{1,0} slice(%param.2), slice={[8:12], [0:8]}
  %part.3 = f32[4,8]{1,0} slice(%param.2), slice={[12:16], [0:8]}
  %ppermute.3 = f32[16,8]{1,0} collective-permute(%param.2), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}, metadata={op_name="jit(f)/shard_map/ppermute" stack_frame_id=8}
  %psum.7 = f32[16,8]{1,0} all-reduce(%param.2), channel_id=1, replica_groups={{0,4},{1,5},{2,6},{3,7}}, use_global_device_ids=true, to_apply=%region_0.0, metadata={op_name="jit(f)/shard_map/psum" stack_frame_id=4}
  %reduce_scatter.7 = f32[4,8]{1,0} reduce-scatter(%param.2), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, dimensions={0}, to_apply=%region_0.0, metadata={op_name="jit(f)/shard_map/reduce_scatter"}
  %convert_bitcast_fusion = f32[1,2,8]{2,1,0} fusion(%param.3), kind=kLoop, calls=%fused_computation
  %all-to-all = (f32[4,8]{1,0}, f32[4,8]{1,0}, f32[4,8]{1,0}, f32[4,8]{1,0}) all-to-all(%part.0, %part.1, %part.2, %part.3), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, metadata={op_name="jit(f)/shard_map/all_to_all"}
  %all_gather.7 = f32[4,2,8]{2,1,0} all-gather(%convert_bitcast_fusion), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}, use_global_device_ids=true, metadata={op_name="jit(f)/shard_map/all_gather"}
  ROOT %tuple.5 = (f32[16,8]{1,0}, f32[4,2,8]{2,1,0}, f32[4,8]{1,0}, (f32[4,8]{1,0}, f32[4,8]{1,0}, f32[4,8]{1,0}, f32[4,8]{1,0}), f32[16,8]{1,0}) tuple(%psum.7, %all_gather.7, %reduce_scatter.7, %all-to-all, %ppermute.3)
}

"""

# jax 0.11.0, the same program: groups as axes of the mesh.
CPU_KINDS_0_11 = CPU_KINDS.replace(
    "replica_groups={{0,4},{1,5},{2,6},{3,7}}", "replica_groups=mesh['e'=2,'d'=4] {'e'}"
).replace("replica_groups={{0,1,2,3},{4,5,6,7}}", "replica_groups=mesh['e'=2,'d'=4] {'d'}")

# jax 0.10.2, the same program for an H100; bf16 travels as bf16.
GPU_KINDS = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

%region_0.0 (psum.0: f32[], psum.1: f32[]) -> f32[] {
  %psum.0 = f32[] parameter(0), metadata={op_name="psum" scheduling_name="psum.0"}
  %psum.1 = f32[] parameter(1), metadata={op_name="psum" scheduling_name="psum.1"}
  ROOT %add.0.0 = f32[] add(%psum.0, %psum.1), metadata={op_name="add" scheduling_name="add.0.0"}
}

ENTRY %main.0_spmd (param.2: f32[16,8], param.3: bf16[2,8]) -> (f32[16,8], bf16[4,2,8], f32[4,8], f32[16,8], f32[16,8]) {
  %param.2 = f32[16,8]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}, metadata={op_name="x"}
  %collective-permute-start = (f32[16,8]{1,0}, f32[16,8]{1,0}) collective-permute-start(%param.2), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}, metadata={op_name="jit(f)/shard_map/ppermute"}
  %collective-permute-done = f32[16,8]{1,0} collective-permute-done(%collective-permute-start), metadata={op_name="jit(f)/shard_map/ppermute"}
  %param.3 = bf16[2,8]{1,0} parameter(1), sharding={devices=[8,1]<=[8]}, metadata={op_name="y"}
  %bitcast.1 = bf16[1,2,8]{2,1,0} bitcast(%param.3), metadata={op_name="y"}
  %all-gather-start = (bf16[1,2,8]{2,1,0}, bf16[4,2,8]{2,1,0}) all-gather-start(%bitcast.1), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}, use_global_device_ids=true, metadata={op_name="jit(f)/shard_map/all_gather"}
  %all-gather-done = bf16[4,2,8]{2,1,0} all-gather-done(%all-gather-start), metadata={op_name="jit(f)/shard_map/all_gather"}
  %reduce-scatter-start = ((f32[16,8]{1,0}), f32[4,8]{1,0}) reduce-scatter-start(%param.2), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, dimensions={0}, to_apply=%region_0.0, metadata={op_name="jit(f)/shard_map/reduce_scatter"}
  %copy.7 = f32[16,8]{1,0} copy(%param.2), metadata={scheduling_name="copy.7"}
  %reduce-scatter-done = f32[4,8]{1,0} reduce-scatter-done(%reduce-scatter-start), metadata={op_name="jit(f)/shard_map/reduce_scatter"}
  %all-reduce-start = f32[16,8]{1,0} all-reduce-start(%copy.7), channel_id=1, replica_groups={{0,4},{1,5},{2,6},{3,7}}, use_global_device_ids=true, to_apply=%region_0.0, metadata={op_name="jit(f)/shard_map/psum"}, backend_config={"operation_queue_id":"0","collective_backend_config":{"is_sync":true,"is_pipelined":false,"backend":"DEFAULT"}}
  %all-reduce-done = f32[16,8]{1,0} all-reduce-done(%all-reduce-start), metadata={op_name="jit(f)/shard_map/psum"}
  %all-to-all-start = ((f32[16,8]{1,0}), f32[16,8]{1,0}) all-to-all-start(%param.2), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}, metadata={op_name="jit(f)/shard_map/all_to_all"}
  %all-to-all-done = f32[16,8]{1,0} all-to-all-done(%all-to-all-start), metadata={op_name="jit(f)/shard_map/all_to_all"}
  ROOT %tuple.5.0 = (f32[16,8]{1,0}, bf16[4,2,8]{2,1,0}, f32[4,8]{1,0}, f32[16,8]{1,0}, f32[16,8]{1,0}) tuple(%all-reduce-done, %all-gather-done, %reduce-scatter-done, %all-to-all-done, %collective-permute-done)
}

"""

# jax 0.11.0: a start's type lists operands and results as two tuples.
GPU_KINDS_0_11 = (
    GPU_KINDS.replace(
        "(f32[16,8]{1,0}, f32[16,8]{1,0}) collective-permute-start",
        "((f32[16,8]{1,0}), f32[16,8]{1,0}) collective-permute-start",
    )
    .replace(
        "(bf16[1,2,8]{2,1,0}, bf16[4,2,8]{2,1,0}) all-gather-start",
        "((bf16[1,2,8]{2,1,0}), bf16[4,2,8]{2,1,0}) all-gather-start",
    )
    .replace(
        "f32[16,8]{1,0} all-reduce-start(%copy.7)",
        "((f32[16,8]{1,0}), f32[16,8]{1,0}) all-reduce-start(%copy.7)",
    )
)

# jax 0.10.2, CPU with `cse` disabled: the loop has no known_trip_count.
CPU_CONDITIONAL_IN_LOOP = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

%region_1.0_spmd (param.8: (f32[1])) -> (f32[1]) {
  ROOT %param.8 = (f32[1]{0}) parameter(0)
}

%region_3.0 (psum.0: f32[], psum.1: f32[]) -> f32[] {
  %psum.0 = f32[] parameter(0)
  %psum.1 = f32[] parameter(1)
  ROOT %add.3 = f32[] add(%psum.0, %psum.1)
}

%region_2.0_spmd (param.1: (f32[1024,128], f32[1])) -> (f32[1]) {
  %param.1 = (f32[1024,128]{1,0}, f32[1]{0}) parameter(0)
  %get-tuple-element.28 = f32[1]{0} get-tuple-element(%param.1), index=1
  %get-tuple-element.29 = f32[1024,128]{1,0} get-tuple-element(%param.1), index=0
  %psum.6 = f32[1024,128]{1,0} all-reduce(%get-tuple-element.29), channel_id=1, replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true, to_apply=%region_3.0, metadata={op_name="jit(f)/shard_map/while/body/closed_call/cond/branch_1_fun/psum" stack_frame_id=27}
  %slice.1 = f32[1]{0} slice(%psum.6), slice={[0:1], [0:1]}
  ROOT %tuple.40 = (f32[1]{0}) tuple(%slice.1)
}

%wrapped_add_computation (param_0.6: s32[], param_1.8: s32[]) -> s32[] {
  %param_0.6 = s32[] parameter(0)
  %param_1.8 = s32[] parameter(1)
  ROOT %add.25 = s32[] add(%param_0.6, %param_1.8)
}

%region_0.4_spmd.clone.clone.clone (param.13: (s32[], f32[1], s32[], f32[1024,128])) -> (s32[], f32[1], s32[], f32[1024,128]) {
  %param.13 = (s32[], f32[1]{0}, s32[], f32[1024,128]{1,0}) parameter(0)
  %constant.1.clone.3 = s32[] constant(1), metadata={op_name="jit(f)/shard_map"}
  %get-tuple-element.110 = f32[1024,128]{1,0} get-tuple-element(%param.13), index=3
  %get-tuple-element.109 = s32[] get-tuple-element(%param.13), index=2
  %get-tuple-element.104 = f32[1]{0} get-tuple-element(%param.13), index=1
  %get-tuple-element.103 = s32[] get-tuple-element(%param.13), index=0
  %tuple.37 = (f32[1]{0}) tuple(%get-tuple-element.104)
  %tuple.35 = (f32[1024,128]{1,0}, f32[1]{0}) tuple(%get-tuple-element.110, %get-tuple-element.104)
  %copy.8 = s32[] copy(%get-tuple-element.103)
  %wrapped_add = s32[] fusion(%copy.8, %constant.1.clone.3), kind=kLoop, calls=%wrapped_add_computation, metadata={op_name="jit(f)/shard_map/while/body/add"}
  %conditional.clone.3 = (f32[1]{0}) conditional(%get-tuple-element.109, %tuple.37, %tuple.35), branch_computations={%region_1.0_spmd, %region_2.0_spmd}
  %get-tuple-element.108 = f32[1]{0} get-tuple-element(%conditional.clone.3), index=0
  ROOT %tuple.43 = (s32[], f32[1]{0}, s32[], f32[1024,128]{1,0}) tuple(%wrapped_add, %get-tuple-element.108, %get-tuple-element.109, %get-tuple-element.110)
}

%wrapped_compare_computation (param_0.7: s32[], param_1.9: s32[]) -> pred[] {
  %param_0.7 = s32[] parameter(0)
  %param_1.9 = s32[] parameter(1)
  ROOT %lt.5 = pred[] compare(%param_0.7, %param_1.9), direction=LT
}

%region_4.5_spmd.clone.clone (param.12: (s32[], f32[1], s32[], f32[1024,128])) -> pred[] {
  %param.12 = (s32[], f32[1]{0}, s32[], f32[1024,128]{1,0}) parameter(0)
  %constant.2.clone.2 = s32[] constant(7), metadata={op_name="jit(f)/shard_map"}
  %get-tuple-element.85 = s32[] get-tuple-element(%param.12), index=0
  ROOT %wrapped_compare = pred[] fusion(%get-tuple-element.85, %constant.2.clone.2), kind=kLoop, calls=%wrapped_compare_computation
}

ENTRY %main.7_spmd (param.6: f32[1024,128], param.7: f32[1]) -> f32[1] {
  %param.6 = f32[1024,128]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}, metadata={op_name="x"}
  %param.7 = f32[1]{0} parameter(1), sharding={replicated}, metadata={op_name="t"}
  %constant.9.clone.1 = s32[] constant(0), metadata={op_name="jit(f)/shard_map"}
  %axis_index.12 = s32[] constant(2)
  %copy.12 = f32[1]{0} copy(%param.7)
  %copy.14 = s32[] copy(%constant.9.clone.1)
  %tuple.41 = (s32[], f32[1]{0}, s32[], f32[1024,128]{1,0}) tuple(%copy.14, %copy.12, %axis_index.12, %param.6)
  %while.14 = (s32[], f32[1]{0}, s32[], f32[1024,128]{1,0}) while(%tuple.41), condition=%region_4.5_spmd.clone.clone, body=%region_0.4_spmd.clone.clone.clone, metadata={op_name="jit(f)/shard_map/while"}, backend_config={"dynamic_variables":[],"known_induction_variable":{"tuple_index":"0"}}
  ROOT %get-tuple-element.112 = f32[1]{0} get-tuple-element(%while.14), index=1, metadata={op_name="jit(f)/shard_map/while"}
}

"""

# The same for an H100: two computations instead of a list, and a count that is known.
GPU_CONDITIONAL_IN_LOOP = CPU_CONDITIONAL_IN_LOOP.replace(
    "branch_computations={%region_1.0_spmd, %region_2.0_spmd}",
    "true_computation=%region_1.0_spmd, false_computation=%region_2.0_spmd",
).replace('{"dynamic_variables":[],', '{"known_trip_count":{"n":"9"},"dynamic_variables":[],')

# libtpu 0.0.52, v5e:2x4: an all-gather that overlaps a payload's loop is printed three times.
TPU_OVERLAPPED = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

%fused_computation.1 (param_0.5: f32[128,128]) -> (f32[128,128], f32[1024,128], s32[2]) {
  %param_0.5 = f32[128,128]{1,0:T(8,128)} parameter(0)
  %all-gather.7 = f32[1024,128]{1,0:T(8,128)} all-gather(%param_0.5), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="0"}, metadata={op_name="jit(f)/shard_map/all_gather" stack_frame_id=9}, backend_config={"flag_configs":[],"async_collective_fusion_config":{"flag_start":"-1","flag_end":"-1"}}
  ROOT %custom-call.1 = (f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, s32[2]{0:S(4)}) custom-call(%all-gather.7), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion.7 (param_0.8: f32[128,128], param_1.1: f32[1024,128], param_2.2: s32[2], param_9.2: f32[128,128]) -> (f32[128,128], f32[128,128], f32[1024,128], s32[2]) {
  %param_9.2 = f32[128,128]{1,0:T(8,128)S(1)} parameter(3)
  %convolution.5 = f32[128,128]{1,0:T(8,128)} convolution(%param_9.2, %param_9.2), dim_labels=bf_io->bf, metadata={op_name="jit(f)/shard_map/while/body/closed_call/dot_general" stack_frame_id=10}
  %param_0.8 = f32[128,128]{1,0:T(8,128)} parameter(0)
  %param_1.1 = f32[1024,128]{1,0:T(8,128)S(1)} parameter(1)
  %all-gather.9 = f32[1024,128]{1,0:T(8,128)S(1)} all-gather(%param_0.8), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="0"}, metadata={op_name="jit(f)/shard_map/all_gather" stack_frame_id=9}, backend_config={"flag_configs":[],"async_collective_fusion_config":{"flag_start":"2","flag_end":"8"}}
  %param_2.2 = s32[2]{0:S(4)} parameter(2)
  ROOT %tuple.30 = (f32[128,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, s32[2]{0:S(4)}) tuple(%convolution.5, %param_0.8, %all-gather.9, %param_2.2)
}

%wide.region_0.1_spmd.sunk (wide.param.2: (s32[], f32[128,128], s32[], f32[128,128], f32[1024,128], /*index=5*/s32[2])) -> (s32[], f32[128,128], s32[], f32[128,128], f32[1024,128], /*index=5*/s32[2]) {
  %constant.5.clone.1..sunk = s32[]{:T(128)} constant(1), metadata={op_name="jit(f)/shard_map" stack_frame_id=2}
  %wide.param.2 = (s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)S(1)}, s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, /*index=5*/s32[2]{0:S(4)}) parameter(0)
  %get-tuple-element.41 = f32[128,128]{1,0:T(8,128)S(1)} get-tuple-element(%wide.param.2), index=1
  %get-tuple-element.60 = s32[2]{0:S(4)} get-tuple-element(%wide.param.2), index=5
  %get-tuple-element.59 = f32[1024,128]{1,0:T(8,128)S(1)} get-tuple-element(%wide.param.2), index=4
  %get-tuple-element.58 = f32[128,128]{1,0:T(8,128)} get-tuple-element(%wide.param.2), index=3
  %fusion.7 = (f32[128,128]{1,0:T(8,128)}, f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, s32[2]{0:S(4)}) fusion(%get-tuple-element.58, %get-tuple-element.59, %get-tuple-element.60, %get-tuple-element.41), kind=kOutput, output_to_operand_aliasing={{1}: (0, {}), {2}: (1, {}), {3}: (2, {})}, calls=%async_collective_fusion.7, metadata={op_name="jit(f)/shard_map/while/body/closed_call/dot_general" stack_frame_id=10}
  %get-tuple-element.40 = s32[]{:T(128)} get-tuple-element(%wide.param.2), index=0
  %add.31 = s32[]{:T(128)} add(%get-tuple-element.40, %constant.5.clone.1..sunk), metadata={op_name="jit(f)/shard_map/while/body/add" stack_frame_id=8}
  %get-tuple-element.45 = s32[]{:T(128)} get-tuple-element(%wide.param.2), index=2
  %get-tuple-element.76 = f32[128,128]{1,0:T(8,128)} get-tuple-element(%fusion.7), index=0
  %get-tuple-element.77 = f32[128,128]{1,0:T(8,128)} get-tuple-element(%fusion.7), index=1
  %get-tuple-element.78 = f32[1024,128]{1,0:T(8,128)S(1)} get-tuple-element(%fusion.7), index=2
  %get-tuple-element.80 = s32[2]{0:S(4)} get-tuple-element(%fusion.7), index=3
  ROOT %tuple.26 = (s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)S(1)}, s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, /*index=5*/s32[2]{0:S(4)}) tuple(%add.31, %get-tuple-element.76, %get-tuple-element.45, %get-tuple-element.77, %get-tuple-element.78, /*index=5*/%get-tuple-element.80)
}

%wide.region_1.2_spmd (wide.param.1: (s32[], f32[128,128], s32[], f32[128,128], f32[1024,128], /*index=5*/s32[2])) -> pred[] {
  %constant.10.clone.1 = s32[]{:T(128)} constant(20), metadata={op_name="jit(f)/shard_map" stack_frame_id=2}
  %wide.param.1 = (s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)S(1)}, s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, /*index=5*/s32[2]{0:S(4)}) parameter(0)
  %get-tuple-element.26 = s32[]{:T(128)} get-tuple-element(%wide.param.1), index=0
  ROOT %lt.3 = pred[]{:T(512)} compare(%get-tuple-element.26, %constant.10.clone.1), direction=LT
}

%fused_computation.3 (param_0.9: f32[128,128], param_1.2: f32[1024,128], param_2.4: s32[2]) -> f32[1024,128] {
  %param_0.9 = f32[128,128]{1,0:T(8,128)} parameter(0)
  %param_1.2 = f32[1024,128]{1,0:T(8,128)S(1)} parameter(1)
  %all-gather.11 = f32[1024,128]{1,0:T(8,128)} all-gather(%param_0.9), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="0"}, metadata={op_name="jit(f)/shard_map/all_gather" stack_frame_id=9}, backend_config={"flag_configs":[],"async_collective_fusion_config":{"flag_start":"2","flag_end":"8"}}
  %param_2.4 = s32[2]{0:S(4)} parameter(2)
  ROOT %custom-call.3 = f32[1024,128]{1,0:T(8,128)S(1)} custom-call(%param_0.9, %param_1.2, %all-gather.11, %param_2.4), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main.4_spmd (param.5: f32[128,128], param.6: f32[128,128]) -> (f32[1024,128], f32[1024,128]) {
  %constant.11.clone.1 = s32[]{:T(128)} constant(0), metadata={op_name="jit(f)/shard_map" stack_frame_id=2}
  %constant.5.clone.1 = s32[]{:T(128)} constant(1), metadata={op_name="jit(f)/shard_map" stack_frame_id=2}
  %param.5 = f32[128,128]{1,0:T(8,128)} parameter(0), metadata={op_name="x"}
  %param.6 = f32[128,128]{1,0:T(8,128)} parameter(1), metadata={op_name="x2"}
  %async-collective-start = (f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, s32[2]{0:S(4)}) fusion(%param.5), kind=kCustom, output_to_operand_aliasing={{0}: (0, {})}, calls=%fused_computation.1
  %copy.18 = s32[]{:T(128)} copy(%constant.11.clone.1)
  %get-tuple-element.51 = s32[2]{0:S(4)} get-tuple-element(%async-collective-start), index=2
  %get-tuple-element.50 = f32[1024,128]{1,0:T(8,128)S(1)} get-tuple-element(%async-collective-start), index=1
  %get-tuple-element.49 = f32[128,128]{1,0:T(8,128)} get-tuple-element(%async-collective-start), index=0
  %tuple.24 = (s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)S(1)}, s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, /*index=5*/s32[2]{0:S(4)}) tuple(%copy.18, %param.6, %constant.5.clone.1, %get-tuple-element.49, %get-tuple-element.50, /*index=5*/%get-tuple-element.51)
  %while.10 = (s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)S(1)}, s32[]{:T(128)}, f32[128,128]{1,0:T(8,128)}, f32[1024,128]{1,0:T(8,128)S(1)}, /*index=5*/s32[2]{0:S(4)}) while(%tuple.24), condition=%wide.region_1.2_spmd, body=%wide.region_0.1_spmd.sunk, metadata={op_name="jit(f)/shard_map/while" stack_frame_id=6}
  %get-tuple-element.69 = s32[2]{0:S(4)} get-tuple-element(%while.10), index=5
  %get-tuple-element.68 = f32[1024,128]{1,0:T(8,128)S(1)} get-tuple-element(%while.10), index=4
  %get-tuple-element.67 = f32[128,128]{1,0:T(8,128)} get-tuple-element(%while.10), index=3
  %async-collective-done = f32[1024,128]{1,0:T(8,128)S(1)} fusion(%get-tuple-element.67, %get-tuple-element.68, %get-tuple-element.69), kind=kCustom, output_to_operand_aliasing={{}: (1, {})}, calls=%fused_computation.3, metadata={op_name="jit(f)/shard_map/all_gather" stack_frame_id=9}
  %all-gather.14 = f32[1024,128]{1,0:T(8,128)S(1)} all-gather(%param.6), channel_id=3, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, metadata={op_name="jit(f)/shard_map/all_gather" stack_frame_id=21}
  ROOT %tuple.32 = (f32[1024,128]{1,0:T(8,128)S(1)}, f32[1024,128]{1,0:T(8,128)S(1)}) tuple(%async-collective-done, %all-gather.14)
}

"""

# libtpu 0.0.52, v5e:2x4: the reduce-scatter of bf16[1000,128] doesn't fit the tiles.
TPU_PADDED_REDUCE_SCATTER = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

%region_0.0.clone (reduce_scatter.8: bf16[], reduce_scatter.9: bf16[]) -> bf16[] {
  %reduce_scatter.8 = bf16[]{:T(256)} parameter(0), metadata={op_name="reduce_scatter"}
  %reduce_scatter.9 = bf16[]{:T(256)} parameter(1), metadata={op_name="reduce_scatter"}
  ROOT %add.2 = bf16[]{:T(256)} add(%reduce_scatter.8, %reduce_scatter.9), metadata={op_name="add"}
}

%all-reduce-scatter (input: bf16[1000,128]) -> bf16[128,128] {
  %input = bf16[1000,128]{1,0:T(8,128)(2,1)} parameter(0)
  %constant.2 = bf16[] constant(0)
  %pad = bf16[1024,128]{1,0:T(8,128)(2,1)} pad(%input, %constant.2), padding=0_24x0_0
  %all-reduce.1 = bf16[1024,128]{1,0:T(8,128)(2,1)} all-reduce(%pad), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%region_0.0.clone, frontend_attributes={from-cross-replica-sharding="true"}
  %partition-id.3 = u32[] partition-id()
  %constant.3 = u32[] constant(128)
  %multiply.1 = u32[]{:T(128)} multiply(%partition-id.3, %constant.3)
  %constant.4 = u32[] constant(0)
  ROOT %dynamic-slice.1 = bf16[128,128]{1,0:T(8,128)(2,1)S(1)} dynamic-slice(%all-reduce.1, %multiply.1, %constant.4), dynamic_slice_sizes={128,128}
}

ENTRY %main.0_spmd (param.1: bf16[1000,128]) -> bf16[149,128] {
  %param.1 = bf16[1000,128]{1,0:T(8,128)(2,1)} parameter(0), metadata={op_name="x"}
  %fusion = bf16[128,128]{1,0:T(8,128)(2,1)S(1)} fusion(%param.1), kind=kCustom, calls=%all-reduce-scatter
  %slice = bf16[21,128]{1,0:T(8,128)(2,1)S(1)} slice(%fusion), slice={[107:128], [0:128]}
  %collective-permute-start = (bf16[21,128]{1,0:T(8,128)(2,1)S(1)}, bf16[21,128]{1,0:T(8,128)(2,1)S(1)}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%slice), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7}}
  %collective-permute-done = bf16[21,128]{1,0:T(8,128)(2,1)S(1)} collective-permute-done(%collective-permute-start)
  ROOT %concatenate = bf16[149,128]{1,0:T(8,128)(2,1)S(1)} concatenate(%collective-permute-done, %fusion), dimensions={0}
}

"""


def by_hand(*lines: str, before: str = "") -> str:
    """Return a module whose entry has the given lines after its parameters x, y, i, more before."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"""\
HloModule by_hand

%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

{before}
ENTRY %main (x: f32[64], y: s4[9], i: s32[]) -> f32[64] {{
  %x = f32[64]{{0}} parameter(0)
  %y = s4[9]{{0:E(4)}} parameter(1)
  %i = s32[] parameter(2)
{body}
}}
"""


def loop(
    start: str,
    step: str,
    limit: str,
    direction: str = "LT",
    after: str = "add(%j, %c)",
    compared: str = "%j, %l",
) -> str:
    """Return a module whose entry reduces in `for (i = start; i <direction> limit; i += step)`.

    `start` and `limit` are the lines (type and opcode) of what the loop carries beside x; `after`
    is the next i, from j = i, c = step and l = limit.
    """
    carried = "(s32[], f32[64], s32[])"
    return by_hand(
        f"%start = {start}",
        f"%limit = {limit}",
        f"%init = {carried} tuple(%start, %x, %limit)",
        f"ROOT %w = {carried} while(%init), condition=%more, body=%body",
        before=f"""\
%body (p: {carried}) -> {carried} {{
  %p = {carried} parameter(0)
  %j = s32[] get-tuple-element(%p), index=0
  %v = f32[64]{{0}} get-tuple-element(%p), index=1
  %l = s32[] get-tuple-element(%p), index=2
  %r = f32[64]{{0}} all-reduce(%v), replica_groups={{{{0,1}}}}, to_apply=%sum
  %c = s32[] constant({step})
  %next = s32[] {after}
  ROOT %t = {carried} tuple(%next, %r, %l)
}}

%more (p: {carried}) -> pred[] {{
  %p = {carried} parameter(0)
  %j = s32[] get-tuple-element(%p), index=0
  %l = s32[] get-tuple-element(%p), index=2
  ROOT %go = pred[] compare({compared}), direction={direction}
}}
""",
    )
