"""
The internal names of JAX that jaxmon uses, by purpose, in the order of the page.

After ``#`` comes a purpose. Below it, what is missing without the names that follow:
metrics of the catalogue or descriptions, joined by ``+``; a group, of which one name
suffices; the hook that does not attach; whether jaxmon replaces them. Each name has a
``y`` for each of `RELEASES` that has it; ``a.{b c}`` stands for ``a.b`` and ``a.c``.
"""

TABLE = """
# Creation of jitted functions
JIT_CACHE_MISSES + JIT_CACHE_HITS + RECOMPILES + COMPILES + ERRORS + HOST_TRANSFERS +
        DISPATCH_SECONDS + EXECUTION_SECONDS + NONFINITE | hook misses
    yyyyy jax._src.core.trace_state_clean
JIT_CALLS + JIT_CACHE_HITS | hook calls | replaced
    yyyyy jax._src.pjit._cpp_pjit
calls of functions from jax.pmap
    yyyyy jax.pmap
static arguments in jax.eval_shape of a counted function | hook calls
    yyyyy jax._src.api.jit
static arguments in jax.eval_shape of a counted function
    yyyyy jax._src.api:eval_shape(fun)
libraries that recognise jitted functions by that name
    yyyyy <jitted>.__class__.PjitFunction
compiles before a budget started
    yyyyy <jitted>._cache_size
which programs of a warm-up are used
    yyyyy <jitted>._clear_cache
the function label of compiles ahead of time
    yyyyy <jitted>._fun
    -yyyy <jitted>._jit_info
the line that jits: whose function it is, and new_function
    yyyyy jax._src.pjit:make_jit
the label of such functions
    yyyyy jax._src.tree_util._HashableCallableShim
the label of exported programs
    yyyyy jax._src.export._export.Exported.fun_name
# Missed calls
JIT_CACHE_MISSES + JIT_CACHE_HITS + RECOMPILES | hook misses | replaced
    yyyyy jax._src.pjit._infer_params
calls and misses of functions from jax.pmap | replaced
    yyy-- jax._src.api._cpp_pmap
misses of functions from jax.pmap | replaced
    yyy-- jax._src.api._prepare_pmap
reasons of misses without a compile | replaced
    yyyyy jax._src.pjit._get_fastpath_data
the function label of misses and compiles
    yyyyy jax._src.pjit:_cpp_pjit.cache_miss
the function label of misses and compiles + RECOMPILES
    yyyyy jax._src.pjit:_cpp_pjit.cache_miss({fun jit_info args kwargs executable})
recompiles under transformations + RECOMPILES
    yyyyy jax._src.pjit:_pjit_call_impl_python
    yyyyy jax._src.pjit:_pjit_call_impl_python({args jaxpr name})
RECOMPILES
    yyyyy jax._src.core.Tracer
the function label for jax.pmap
    yyy-- jax._src.api:_cpp_pmap.cache_miss
JIT_CACHE_MISSES + JIT_CACHE_HITS + RECOMPILES | group helper
    yyy-- jax._src.pjit:_python_pjit_helper
    ---yy jax._src.pjit:_run_python_pjit
reasons of misses without a compile
    yyyyy <jitted call>.unsafe_call.{ordered_effects has_unordered_effects
        has_host_callbacks}
# Arguments of a compiled call
RECOMPILES | group leaves of a call
    yyy-- jax._src.pjit:_python_pjit_helper({p args_flat})
    ---yy jax._src.pjit:_run_python_pjit({p args_flat})
RECOMPILES
    yyyyy jax._src.pjit.PjitParams.{in_avals in_tree}
names of arguments in the differences of a recompile
    yyyyy jax._src.pjit.PjitParams.arg_names
    y---- "<flat index "
label and causes of functions from jax.pmap | group abstract value
    -yyyy jax._src.core.shaped_abstractify
    y---- jax._src.api_util.shaped_abstractify
recompiles by the cause new_function + labels of compiles ahead of time
    yyyyy jax._src.pjit.PjitInfo.fun_sourceinfo
recompiles by the cause options + recompiles by the cause static_argument
    yyyyy jax._src.pjit.PjitInfo.{static_argnums static_argnames}
recompiles by the cause options
    yyyyy jax._src.pjit.PjitInfo.{donate_argnums donate_argnames in_shardings_leaves
        out_shardings_leaves in_layouts_leaves out_layouts_leaves device backend
        keep_unused inline}
    -yyyy jax._src.pjit.PjitInfo.compiler_options_kvs
    yyyyy jax._src.sharding_impls.UnspecifiedValue
    ----y jax._src.api.Inline.AUTO
# The same for pmap
label and causes of functions from jax.pmap | group options of pmap
    -yy-- jax._src.api:_cpp_pmap.cache_miss(prepare_pmap_fn)
    y---- jax._src.api:_cpp_pmap.cache_miss({fun in_axes out_axes
        static_broadcasted_tuple donate_tuple devices axis_size})
label and causes of functions from jax.pmap
    yyy-- jax._src.api:_cpp_pmap.cache_miss({axis_name backend p})
    yyy-- jax._src.api.PmapCallInfo.{flat_args in_tree}
    ---yy "jax._src.pmap"
    --y-- "jax._src.linear_util"
    --yyy jax._src.pmap:pmap.wrapped({infer_params args kwargs})
    ---yy jax._src.pmap.CachedShardMap.pmapped
    --yyy jax._src.pmap:pmap.lower(infer_params)
    --yyy jax._src.pmap:pmap.infer_params({static_broadcasted_tuple in_axes
        donate_tuple devices backend axis_size axis_name})
label and causes of functions from jax.pmap | group leaves of a pmap
    --y-- jax._src.pmap:pmap.wrapped(p)
    ---yy jax._src.pmap:pmap.wrapped({cached dyn_args_flat})
label and causes of functions from jax.pmap | group function of a pmap
    --y-- jax._src.pmap:pmap.infer_params(f)
    ---yy jax._src.pmap:pmap.infer_params(wrapped_fun)
recompiles by the cause options | group out_axes of a pmap
    --y-- jax._src.pmap:pmap.infer_params(out_axes)
    ---yy jax._src.pmap:pmap.infer_params(out_axes_flat)
recompiles by the cause options
    yyyyy jax._src.core._TempAxisName
    ---yy "_internal_"
    yyyyy "<axis 0x"
# Configuration
recompiles by the cause context
    yyyyy jax._src.config.trace_context
    ---yy jax._src.config.trace_context_names
    yyyyy jax._src.config.enable_x64.value
recompiles by the cause context | group name of a setting
    --yyy jax._src.config.enable_x64.name
    yyyyy jax._src.config.enable_x64._name
recompiles by the cause context | group metadata
    --yyy jax._src.xla_metadata_lib.XlaMetadata
    -y--- jax._src.xla_metadata.XlaMetadata
# Arrays, shardings, devices
recompiles by the causes sharding and committed
    yyyyy <array>._committed
    yyyyy <sharding>._internal_device_list
    yyyyy jax.sharding.{NamedSharding SingleDeviceSharding Mesh AbstractMesh}
    yyyyy jax._src.sharding_impls.GSPMDSharding
    -yyyy <mesh>.axis_types
recompiles by the causes sharding and committed | group class of a specification
    ---yy <spec>.__class__.P
    yyy-- <spec>.__class__.PartitionSpec
text of static arguments that are trees
    yyyyy <tree>.__class__.PyTreeDef
text of static arguments that are devices
    yyyyy <device>.__class__.Device
warm-up of signatures with such objects
    yyyyy jax._src.tree_util._registry
LIVE_ARRAY_BYTES
    yyyyy <array>.on_device_size_in_bytes
# Compiles
COMPILES + COMPILES_IN_PROGRESS + COMPILE_SECONDS | hook compiles | replaced
    yyyyy jax._src.compiler.compile_or_get_cached
outcomes of compiles whose events were missed | group builds | replaced
    yyy-- jax._src.compiler.backend_compile
    -yyyy jax._src.compiler.backend_compile_and_load
the line that cleared JAX's caches | replaced
    yyyyy jax._src.util.clear_all_caches
PROGRAMS + PROGRAM_INFO + PROGRAM_FLOPS + PROGRAM_ACCESSED_BYTES + labels of compiles
        not caused by a call
    yyyyy jax._src.interpreters.pxla:_cached_compilation({name xla_executable})
programs of jax.pmap
    yyy-- jax._src.interpreters.pxla:UnloadedPmapExecutable.from_hlo({pci compiled})
the function label of compiles ahead of time
    yyyyy jax._src.interpreters.pxla:{UnloadedMeshExecutable.from_hlo(all_args_info)
        lower_sharding_computation(closed_jaxpr) lower_sharding_computation(fun_name)}
    yyyyy <jaxpr>.debug_info.func_src_info
updates that nothing returns; arguments that do not advance
    yyyyy jax._src.pjit:_resolve_and_lower(jaxpr)
# Ahead of time
the function label of compiles ahead of time | group ahead of time
    -yyyy jax._src.pjit:jit_trace(jit_func)
    y---- jax._src.pjit:_make_jit_wrapper.trace({fun jit_info})
# Events
COMPILE_SECONDS + PERSISTENT_CACHE_REQUESTS | hook monitoring
    yyyyy jax._src.monitoring.{register_event_listener
        register_event_duration_secs_listener get_event_listeners
        get_event_duration_listeners}
COMPILE_SECONDS + PERSISTENT_CACHE_REQUESTS | group removing listeners | hook
        monitoring
    --yyy jax._src.monitoring.{unregister_event_listener
        unregister_event_duration_listener}
    yy--- jax._src.monitoring.{_unregister_event_listener_by_callback
        _unregister_event_duration_listener_by_callback}
CHECKPOINT_BYTES
    -yyyy jax._src.monitoring.{register_scalar_listener get_scalar_listeners}
CHECKPOINT_BYTES | group removing scalar listeners
    --yyy jax._src.monitoring.unregister_scalar_listener
    -y--- jax._src.monitoring._unregister_scalar_listener_by_callback
COMPILE_SECONDS
    yyyyy /jax/core/compile/jaxpr_trace_duration
    yyyyy /jax/compilation_cache/cache_retrieval_time_sec
COMPILE_SECONDS + TIME_SECONDS
    yyyyy /jax/core/compile/jaxpr_to_mlir_module_duration
COMPILES + PROGRAMS + PROGRAM_INFO + PROGRAM_FLOPS + PROGRAM_ACCESSED_BYTES
    yyyyy /jax/core/compile/backend_compile_duration
PERSISTENT_CACHE_REQUESTS
    yyyyy /jax/compilation_cache/compile_requests_use_cache
PERSISTENT_CACHE_REQUESTS + COMPILES
    yyyyy /jax/compilation_cache/cache_hits
PERSISTENT_CACHE_WRITES
    yyyyy /jax/compilation_cache/cache_misses
PERSISTENT_CACHE_SAVED_SECONDS
    yyyyy /jax/compilation_cache/compile_time_saved_sec
# Programs
PROGRAMS + PROGRAM_INFO + PROGRAM_FLOPS + PROGRAM_ACCESSED_BYTES
    yyyyy <executable>.{hlo_modules cost_analysis get_compiled_memory_stats}
PROGRAM_ARGUMENT_BYTES + PROGRAM_OUTPUT_BYTES + PROGRAM_TEMPORARY_BYTES +
        PROGRAM_CODE_BYTES
    yyyyy <memory>.{argument_size_in_bytes output_size_in_bytes temp_size_in_bytes
        generated_code_size_in_bytes}
PROGRAM_PEAK_BYTES
    --yyy <memory>.peak_memory_in_bytes
PROGRAM_INFO + PROGRAMS | group print options
    ---yy jax._src.lib.xla_client.hlo.HloPrintOptions
    yyy-- jax._src.lib.xla_client._xla.HloPrintOptions
source lines in profiles; the HLO of programs in a bundle
    yyyyy <device>.client.live_executables
determinism checks of sampled calls
    yyyyy <traced>.donate_argnums
    yyyyy <traced>.args_info
    yyyyy <jaxpr>.effects
determinism checks of sampled calls + FLOPS + IDEAL_SECONDS + PROGRAM_MATRIX_FLOPS
    yyyyy <jaxpr>.eqns
what bounds programs with loops
    yyyyy jax._src.lib.xla_client._xla.hlo_module_cost_analysis
    yyyyy "bytes accessed"
what bounds programs with loops | group reading HLO
    ---yy jax._src.lib.xla_client.hlo.hlo_module_from_text
    yyy-- jax._src.lib.xla_client._xla.hlo_module_from_text
FLOPS + IDEAL_SECONDS + PROGRAM_MATRIX_FLOPS
    yyyyy jax.extend.core.primitives
    yyyyy "rematted_computation"
    yyyyy <product>.precision
    -yyyy <ragged product>.ragged_dot_dimension_numbers
    yyyyy jax._src.pallas.pallas_call:_pallas_call_jvp_rule({grid_mapping
        cost_estimate})
    yyyyy jax._src.pallas.core.GridMapping.grid
    yyyyy jax._src.pallas.core.CostEstimate.flops
    yyyyy <equation>.source_info.traceback.frames
loops that were unrolled into a program
    yyyyy <equation>.source_info.traceback.raw_frames
    yyyyy <equation>.source_info.name_stack
operations on constants, which compiles compute; arrays that are constants
    yyyyy <jaxpr>.constvars
branches that are all computed under jax.vmap
    yyyyy jax._src.lax.control_flow.conditionals
names of arrays that each device holds whole
    yyyyy <jaxpr>.debug_info.arg_names
names of copies that differ between devices
    yyyyy <jaxpr>.debug_info.result_paths
copies that differ between devices | group what a shard_map divides
    -yyyy <shard_map>.in_specs
    y---- <shard_map>.in_names
copies that differ between devices | group what a shard_map says of results
    -yyyy <shard_map>.out_specs
    y---- <shard_map>.out_names
copies that differ between devices | group what a shard_map checks
    -yyyy <shard_map>.check_vma
    y---- <shard_map>.check_rep
FLOPS + IDEAL_SECONDS + PROGRAM_MATRIX_FLOPS | group axes of a shard_map
    ---yy <shard_map>.newly_manual_axes
    -yy-- <shard_map>.manual_axes
    y---- <shard_map>.auto
FLOPS + IDEAL_SECONDS + PROGRAM_MATRIX_FLOPS + KEY_REUSE
    yyyyy <literal>.val
KEY_REUSE
    yyyyy <jaxpr>.invars
keys drawn from outside of jit | group keys | hook draws | replaced
    yyy-- jax._src.random._check_prng_key
    ---yy jax._src.random.core._check_prng_key
copies of arguments by a donation that has no effect
    yyyyy <jitted inside>.donated_invars
determinism checks of sampled calls | group side effects of foreign functions
    -yyyy jax._src.ffi:ffi_call(has_side_effect)
    y---- jax._src.extend.ffi:ffi_call(has_side_effect)
# The persistent cache
PERSISTENT_CACHE_WRITES + PERSISTENT_CACHE_OBSTACLE | hook persistent_cache | replaced
    yyyyy jax._src.compiler._cache_write
PERSISTENT_CACHE_WRITES + PERSISTENT_CACHE_OBSTACLE
    yyyyy jax._src.compiler:_compile_and_write_cache({cache_key module_name
        compile_time host_callbacks})
PERSISTENT_CACHE_ERRORS | hook persistent_cache | replaced
    yyyyy jax._src.compiler.warnings
PERSISTENT_CACHE_ERRORS
    yyyyy jax._src.compiler:_cache_write({cache_key module_name})
    yyyyy jax._src.compiler:_cache_read(cache_key)
    yyyyy jax._src.compiler:_is_executable_in_cache(cache_key)
the obstacle too_large | hook persistent_cache | replaced
    yyyyy jax._src.lru_cache.warnings
the obstacle too_large
    yyyyy jax._src.lru_cache:LRUCache.put
obstacles not_in_use and unusable_directory
    yyyyy jax._src.compilation_cache.{_cache _cache_initialized _cache_checked
        _cache_used}
    yyyyy jax._src.path.epath_installed
    yyyyy <persistent cache>._path
    ---yy jax.config.jax_compilation_cache_check_contents
the obstacle path_in_key
    yyyyy jax._src.compilation_cache.decompress_executable
    yyyyy jax._src.lib.xla_client.CompileOptions
    yyyyy jax._src.cache_key._hash_serialized_compile_options
    yyyyy <compile options>.executable_build_options.debug_options.{
        xla_gpu_per_fusion_autotune_cache_dir xla_gpu_kernel_cache_file}
the obstacle not_writer + the place of a process in its job
    yyyyy jax._src.distributed.global_state.process_id
the cause of compiles of a job that a shared cache does not save
    yyyyy jax._src.lib.xla_client.get_topology_for_devices
# Sampled calls
DISPATCH_SECONDS + EXECUTION_SECONDS + NONFINITE | hook sampling
    yyyyy jax._src.api._nan_check_posthook
    yyyyy jax._src.config.{debug_nans debug_infs}
DISPATCH_SECONDS + EXECUTION_SECONDS + NONFINITE | group hook after a call | hook
        sampling
    --yyy jax._src.api._post_hook_state.{get_global set_global get_local set_local}
    yy--- jax._src.lib.jax_jit.{global_state thread_local_state}
DISPATCH_SECONDS + EXECUTION_SECONDS + NONFINITE
    -yyyy jax._src.config.config_ext.unset
DISPATCH_SECONDS + EXECUTION_SECONDS + NONFINITE | group value of a setting
    -yyyy jax._src.config.debug_nans.get_global
    y---- jax._src.config.debug_nans._value
EXECUTION_SECONDS
    yyyyy <key>._base_array
determinism checks of calls that donate keys
    yyyyy <key>._impl
EXECUTION_SECONDS + NONFINITE
    yyyyy <array>.{is_deleted is_ready}
outputs that the program holds when it ends
    yyyyy <array>.traceback.raw_frames
inspection of values that missed calls return
    yyyyy jax._src.pjit:_cpp_pjit.cache_miss(outs)
# Transfers
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS + HOST_SYNCS +
        HOST_SYNC_SECONDS | hook transfers
    yyyyy jax._src.array.ArrayImpl
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS | group reads | hook
        transfers | replaced
    y---- jax._src.array.ArrayImpl._single_device_array_to_np_array
    -yyyy jax._src.array.ArrayImpl._single_device_array_to_np_array_did_copy
    ----y jax._src.array.ArrayImpl._to_np_array_did_copy
each shard would count as a transfer
    yyyyy jax._src.array:ArrayImpl._value({self i})
HOST_SYNCS + HOST_SYNC_SECONDS | hook transfers | replaced
    yyyyy jax._src.array.ArrayImpl.block_until_ready
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS | group sends | hook
        transfers | replaced
    --yyy jax._src.interpreters.pxla._jax.batched_device_put
    yyyyy jax._src.interpreters.pxla.xc.batched_device_put
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS | group sends, for
        dispatch | replaced
    ---yy jax._src.dispatch._jax.batched_device_put
    yyyyy jax._src.dispatch.xc.batched_device_put
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS
    yyyyy jax._src.interpreters.pxla:batched_device_put(xs)
    ----y jax._src.interpreters.pxla:_shard_np_array(batch_xs)
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS | replaced
    ----y jax._src.interpreters.pxla._jax.shard_args
HOST_SYNCS + HOST_SYNC_SECONDS | group block_until_ready of several | hook transfers |
        replaced
    ---yy jax._src.api._jax.batched_block_until_ready
    yyyyy jax._src.api.xc.batched_block_until_ready
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS | group last step of
        jnp.array
    yyyyy jax._src.lax.lax._convert_element_type
    ---yy jax._src.lax.lax.stage
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS | group where jnp.array
        looks it up | replaced
    --yyy jax._src.numpy.array_constructors.lax
    -y--- jax._src.numpy.array.lax
    yy--- jax._src.numpy.lax_numpy.lax_internal
HOST_TRANSFERS + HOST_TRANSFER_BYTES + HOST_TRANSFER_SECONDS | group what jnp.array
        sends
    --yyy jax._src.numpy.array_constructors:array({out object})
    -y--- jax._src.numpy.array:array({out object})
    y---- jax._src.numpy.lax_numpy:array({out object})
values that 32 bits change, where jax.device_put is given them
    yyyyy jax._src.api:device_put(x)
calls of Python by compiled programs | group what puts them into programs | replaced
    -yyyy jax._src.callback.emit_python_callback
    y---- jax._src.interpreters.mlir.emit_python_callback
the line of such calls
    yyyyy jax._src.interpreters.mlir:jaxpr_subcomp(eqn)
starts and stops of profiles by the program | replaced
    yyyyy jax._src.profiler.{start_trace stop_trace}
the name of the function that the program called
    yyyyy jax._src.array:ArrayImpl.__array__
    yyyyy jax._src.api:_device_get
    yyyyy jax._src.api:block_until_ready.try_to_block
    yyyyy jax._src.numpy.array_methods:_item
transfers of numbers
    yyyyy jax._src.api:{device_put device_put_sharded device_put_replicated}
calls that transfer nothing would be counted
    yyyyy jax._src.interpreters.{mlir partial_eval}
    yyyyy jax._src.{callback debugging}
# What a thread is doing
WALL_SECONDS
    yyyyy jax._src.interpreters.partial_eval:trace_to_jaxpr_dynamic
    y-yy- jax._src.interpreters.partial_eval:trace_to_jaxpr
    ----y jax._src.interpreters.partial_eval:trace_to_jaxpr_nocache
    yyyyy jax._src.interpreters.pxla:{lower_sharding_computation _cached_compilation}
    yyyyy jax._src.compiler:compile_or_get_cached
    yyyyy jax._src.interpreters.pxla:ExecuteReplicated.__call__
    --yyy jax._src.pmap:pmap.wrapped
    yyyyy jax._src.api:{block_until_ready device_get}
    yyyyy jax._src.array:ArrayImpl._value
    yyyyy jax._src.xla_bridge:discover_pjrt_plugins
    yyyyy jax._src.lib:_xla_gc_callback
who is late at a barrier, in `jaxmon job why`
    yyyyy jax._src.distributed:State.{initialize shutdown}
    yyyyy jax._src.xla_bridge:_init_backend
whose callback holds up a job, in `jaxmon job why`
    yyyyy jax._src.callback:_FlatCallback.__call__
# Errors
ERRORS | hook errors | replaced
    yyyyy jax._src.traceback_util._filtering_mode
errors would be counted twice: on construction and on leaving JAX
    yyyyy jax._src.traceback_util:api_boundary.reraise_with_filtered_traceback
ERRORS + OOM_REPORTS + errors raised by syncs | hook runtime_errors
    yyyyy jax.errors.JaxRuntimeError
ERRORS + OOM_REPORTS + errors raised by syncs | hook runtime_errors | replaced
    yyyyy jax.errors.JaxRuntimeError.__init__
ERRORS | hook deleted_arrays
    yyyyy jax._src.array.ArrayImpl._check_if_deleted
ERRORS | hook deleted_arrays | replaced
    yyyyy jax._src.core.ShapedArray.str_short
the kind of some errors
    ---yy jax.errors.JaxRuntimeError.{error_code error_code_string}
    yyyyy jax._src.checkify
    yyyyy "Leaked trace"
    yyyyy "nan generated by primitive"
    yyyyy "Could not allocate"
ERRORS
    yy--- "XlaRuntimeError"
    yyyyy "Array has been deleted"
    yyyyy "invalid value ("
    yyyyy "Non-hashable static arguments are not supported"
    yyyyy "static arguments should be comparable using __eq__"
    yyyyy "Comparator raised exception while sorting pytree dictionary keys"
    yyyyy "std::bad_alloc"
JAX_WARNINGS + the text of such a warning
    yyyyy jax._src.interpreters.mlir:lower_jaxpr_to_module(unused_donations)
    yyyyy jax._src.deprecations:warn(message)
errors would be counted twice
    yyyyy jax._src.traceback_util.{UnfilteredStackTrace SimplifiedTraceback}
    yyyyy jax._src.source_info_util.JaxStackTraceBeforeTransformation
the kind of some errors + KEY_REUSE
    yyyyy jax.errors.{KeyReuseError JAXTypeError JAXIndexError}
stage of a failure
    yyyyy jax._src.interpreters.mlir:lower_jaxpr_to_module
    yyyyy jax._src.dispatch:{_batched_device_put_impl _device_put_impl}
stage of a failure | group traces
    yyy-- jax._src.pjit:_create_pjit_jaxpr
    ---yy jax._src.pjit:_trace_for_jit
GRADIENT_CHECKS
    yyyyy jax._src.public_test_util:{check_close _check_dtypes_match}
# Devices
DEVICE_MEMORY_BYTES + LIVE_ARRAYS + DEVICE_INFO + RUNTIME_INFO + ACCELERATOR_UP
    yyyyy jax._src.xla_bridge.{_backends _backend_lock}
RUNTIME_INFO
    yyyyy jaxlib.__version__
the place of a process in its job
    yyyyy jax._src.distributed.global_state.{client coordinator_address num_processes}
# The profiler
traces by /debug/profile
    yyyyy jax._src.profiler._profile_state.lock
    yyyyy <profile options>.{python_tracer_level host_tracer_level enable_hlo_proto}
    -yyyy <profile options>.raise_error_on_start_failure
traces by /debug/profile | group session of the program
    yyyy- jax._src.profiler._profile_state.profile_session
    ----y jax._src.profiler._profile_state.session
traces by /debug/profile | group profiler | replaced
    -yyyy jax._src.lib._profiler.ProfilerSession
    y---- jax._src.lib.xla_client.profiler.ProfilerSession
traces by /debug/profile | group options of the profiler
    -yyyy jax._src.lib._profiler.ProfileOptions
    y---- jax._src.lib.xla_client.profiler.ProfileOptions
"""
