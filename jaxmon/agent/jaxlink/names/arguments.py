"""Names for the arguments a call was compiled for, and so for recompile causes."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_CAUSES: Costs = (catalog.RECOMPILES,)
_OPTIONS: Costs = ("recompiles by the cause options",)
_PMAP: Costs = ("label and causes of functions from jax.pmap",)
_CONTEXT: Costs = ("recompiles by the cause context",)
_SHARDING: Costs = ("recompiles by the causes sharding and committed",)
_NAMES: Costs = ("names of arguments in the differences of a recompile",)

ARGUMENTS = (
    *each(
        "jax._src.pjit:_python_pjit_helper(*)",
        "p args_flat",
        "PjitParams and the leaves of a call",
        _CAUSES,
        seen="yyy--",
        group="leaves of a call",
    ),
    *each(
        "jax._src.pjit:_run_python_pjit(*)",
        "p args_flat",
        "the same since 0.10",
        _CAUSES,
        seen="---yy",
        group="leaves of a call",
    ),
    *each(
        "jax._src.pjit.PjitParams.*",
        "in_avals in_tree",
        "abstract leaves and the tree of a call",
        _CAUSES,
    ),
    Name("jax._src.pjit.PjitParams.arg_names", "JAX's names of the leaves", _NAMES),
    Name(
        '"<flat index "', "the path of a leaf in arg_names, up to 0.4", _NAMES, "y----"
    ),
    Name(
        "jax._src.core.shaped_abstractify",
        "the abstract value of a leaf if JAX kept none",
        _PMAP,
        "-yyyy",
        "abstract value",
    ),
    Name(
        "jax._src.api_util.shaped_abstractify",
        "the same, up to 0.4",
        _PMAP,
        "y----",
        "abstract value",
    ),
    Name(
        "jax._src.pjit.PjitInfo.fun_sourceinfo",
        "name and line of the function",
        ("recompiles by the cause new_function", "labels of compiles ahead of time"),
    ),
    *each(
        "jax._src.pjit.PjitInfo.*",
        "static_argnums static_argnames",
        "which arguments are static",
        (*_OPTIONS, "recompiles by the cause static_argument"),
    ),
    *each(
        "jax._src.pjit.PjitInfo.*",
        "donate_argnums donate_argnames in_shardings_leaves out_shardings_leaves "
        "in_layouts_leaves out_layouts_leaves device backend keep_unused inline",
        "an option of jax.jit",
        _OPTIONS,
    ),
    Name(
        "jax._src.pjit.PjitInfo.compiler_options_kvs",
        "an option of jax.jit",
        _OPTIONS,
        "-yyyy",
    ),
    Name(
        "jax._src.sharding_impls.UnspecifiedValue",
        "the class of an unspecified sharding",
        _OPTIONS,
    ),
    Name(
        "jax._src.api.Inline.AUTO",
        "an unspecified option, since 0.12",
        _OPTIONS,
        "----y",
    ),
)

PMAP = (
    Name(
        "jax._src.api:_cpp_pmap.cache_miss(prepare_pmap_fn)",
        "a partial with the options of pmap",
        _PMAP,
        "-yy--",
        "options of pmap",
    ),
    *each(
        "jax._src.api:_cpp_pmap.cache_miss(*)",
        "fun in_axes out_axes static_broadcasted_tuple donate_tuple devices axis_size",
        "the same, one by one",
        _PMAP,
        seen="y----",
        group="options of pmap",
    ),
    *each(
        "jax._src.api:_cpp_pmap.cache_miss(*)",
        "axis_name backend p",
        "name of the axis, backend, leaves and tree of the call",
        _PMAP,
        seen="yyy--",
    ),
    *each(
        "jax._src.api.PmapCallInfo.*",
        "flat_args in_tree",
        "leaves and tree of the call",
        _PMAP,
        seen="yyy--",
    ),
    Name(
        '"jax._src.pmap"',
        "the module name of a function jitted by pmap",
        _PMAP,
        "---yy",
    ),
    Name(
        '"jax._src.linear_util"',
        "the same in 0.8",
        _PMAP,
        "--y--",
    ),
    *each(
        "jax._src.pmap:pmap.wrapped(*)",
        "infer_params args kwargs",
        "the pmap around a jitted shard_map, and the arguments of its call",
        _PMAP,
        seen="--yyy",
    ),
    Name(
        "jax._src.pmap:pmap.wrapped(p)",
        "leaves and tree of its call",
        _PMAP,
        "--y--",
        "leaves of a pmap",
    ),
    *each(
        "jax._src.pmap:pmap.wrapped(*)",
        "cached dyn_args_flat",
        "the same since 0.10",
        _PMAP,
        seen="---yy",
        group="leaves of a pmap",
    ),
    Name("jax._src.pmap.CachedShardMap.pmapped", "the same", _PMAP, "---yy"),
    Name(
        "jax._src.pmap:pmap.lower(infer_params)",
        "a pmap lowered ahead of time",
        _PMAP,
        "--yyy",
    ),
    *each(
        "jax._src.pmap:pmap.infer_params(*)",
        "static_broadcasted_tuple in_axes donate_tuple devices backend axis_size "
        "axis_name",
        "options of pmap",
        _PMAP,
        seen="--yyy",
    ),
    Name(
        "jax._src.pmap:pmap.infer_params(f)",
        "the user's function",
        _PMAP,
        "--y--",
        "function of a pmap",
    ),
    Name(
        "jax._src.pmap:pmap.infer_params(wrapped_fun)",
        "the same since 0.9",
        _PMAP,
        "---yy",
        "function of a pmap",
    ),
    Name(
        "jax._src.pmap:pmap.infer_params(out_axes)",
        "an option of jax.pmap",
        _OPTIONS,
        "--y--",
        "out_axes of a pmap",
    ),
    Name(
        "jax._src.pmap:pmap.infer_params(out_axes_flat)",
        "the same since 0.9",
        _OPTIONS,
        "---yy",
        "out_axes of a pmap",
    ),
    Name("jax._src.core._TempAxisName", "the class of an unnamed axis", _OPTIONS),
    Name('"_internal_"', "the name of such an axis", _OPTIONS, "---yy"),
    Name('"<axis 0x"', "the same, as a string", _OPTIONS),
)

CONFIGURATION = (
    Name("jax._src.config.trace_context", "key of JAX's caches", _CONTEXT),
    Name(
        "jax._src.config.trace_context_names",
        "names of its values; before 0.10 read from its code, or setting by setting",
        _CONTEXT,
        "---yy",
    ),
    Name(
        "jax._src.config.enable_x64.value",
        "the value of a setting on this thread",
        _CONTEXT,
    ),
    Name(
        "jax._src.config.enable_x64.name",
        "public name of a setting",
        _CONTEXT,
        "--yyy",
        "name of a setting",
    ),
    Name(
        "jax._src.config.enable_x64._name",
        "the same, up to 0.6",
        _CONTEXT,
        "yyyyy",
        "name of a setting",
    ),
    Name(
        "jax._src.xla_metadata_lib.XlaMetadata",
        "the arguments of set_xla_metadata",
        _CONTEXT,
        "--yyy",
        "metadata",
    ),
    Name(
        "jax._src.xla_metadata.XlaMetadata",
        "the same, up to 0.6",
        _CONTEXT,
        "-y---",
        "metadata",
    ),
)

ARRAYS = (
    Name("<array>._committed", "whether an array is committed", _SHARDING),
    Name(
        "<sharding>._internal_device_list",
        "its devices in order",
        _SHARDING,
    ),
    *each(
        "jax.sharding.*",
        "NamedSharding SingleDeviceSharding Mesh AbstractMesh",
        "classes described as text",
        _SHARDING,
    ),
    Name(
        "jax._src.sharding_impls.GSPMDSharding",
        "the same",
        _SHARDING,
    ),
    Name(
        "<mesh>.axis_types",
        "which axes are explicit",
        _SHARDING,
        "-yyyy",
    ),
    Name(
        "<spec>.__class__.P",
        "how an array is partitioned over a mesh",
        _SHARDING,
        "---yy",
        "class of a specification",
    ),
    Name(
        "<spec>.__class__.PartitionSpec",
        "the same, up to 0.8",
        _SHARDING,
        "yyy--",
        "class of a specification",
    ),
    Name(
        "<tree>.__class__.PyTreeDef",
        "the class of a tree",
        ("text of static arguments that are trees",),
    ),
    Name(
        "<device>.__class__.Device",
        "the class of a device",
        ("text of static arguments that are devices",),
    ),
    Name(
        "jax._src.tree_util._registry",
        "how an object of a pytree class is made of its parts",
        ("warm-up of signatures with such objects",),
    ),
    Name(
        "<array>.on_device_size_in_bytes",
        "size of live arrays, also of packed types such as int4",
        (catalog.LIVE_ARRAY_BYTES,),
    ),
)
