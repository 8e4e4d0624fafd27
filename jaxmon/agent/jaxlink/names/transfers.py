"""Names on the path of transfers between host and device."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_TRANSFERS: Costs = (
    catalog.HOST_TRANSFERS,
    catalog.HOST_TRANSFER_BYTES,
    catalog.HOST_TRANSFER_SECONDS,
)
_SYNCS: Costs = (catalog.HOST_SYNCS, catalog.HOST_SYNC_SECONDS)
_HOW: Costs = ("the name of the function that the program called",)
_FALSE: Costs = ("calls that transfer nothing would be counted",)

TRANSFERS = (
    Name(
        "jax._src.array.ArrayImpl",
        "the class of arrays, whose methods are replaced",
        (*_TRANSFERS, *_SYNCS),
        hook="transfers",
    ),
    Name(
        "jax._src.array.ArrayImpl._single_device_array_to_np_array",
        "reads an array, up to 0.5",
        _TRANSFERS,
        "y----",
        "reads",
        "transfers",
        replaced=True,
    ),
    Name(
        "jax._src.array.ArrayImpl._single_device_array_to_np_array_did_copy",
        "the same since",
        _TRANSFERS,
        "-yyyy",
        "reads",
        "transfers",
        replaced=True,
    ),
    Name(
        "jax._src.array.ArrayImpl._to_np_array_did_copy",
        "the same, of several shards, since 0.12",
        _TRANSFERS,
        "----y",
        "reads",
        "transfers",
        replaced=True,
    ),
    *each(
        "jax._src.array:ArrayImpl._value(*)",
        "self i",
        "which shard of which array is read",
        ("each shard would count as a transfer",),
    ),
    Name(
        "jax._src.array.ArrayImpl.block_until_ready",
        "blocks on an array",
        _SYNCS,
        hook="transfers",
        replaced=True,
    ),
    Name(
        "jax._src.interpreters.pxla._jax.batched_device_put",
        "sends arrays",
        _TRANSFERS,
        "--yyy",
        "sends",
        "transfers",
        replaced=True,
    ),
    Name(
        "jax._src.interpreters.pxla.xc.batched_device_put",
        "the same, under its older name",
        _TRANSFERS,
        "yyyyy",
        "sends",
        "transfers",
        replaced=True,
    ),
    Name(
        "jax._src.dispatch._jax.batched_device_put",
        "the same, looked up elsewhere",
        _TRANSFERS,
        "---yy",
        "sends, for dispatch",
        replaced=True,
    ),
    Name(
        "jax._src.dispatch.xc.batched_device_put",
        "the same, under its older name",
        _TRANSFERS,
        "yyyyy",
        "sends, for dispatch",
        replaced=True,
    ),
    Name(
        "jax._src.interpreters.pxla:batched_device_put(xs)",
        "what is sent",
        _TRANSFERS,
    ),
    Name(
        "jax._src.interpreters.pxla._jax.shard_args",
        "sends several arguments at once, if enabled",
        _TRANSFERS,
        "----y",
        replaced=True,
    ),
    Name(
        "jax._src.interpreters.pxla:_shard_np_array(batch_xs)",
        "what is sent",
        _TRANSFERS,
        "----y",
    ),
    Name(
        "jax._src.api._jax.batched_block_until_ready",
        "blocks on several arrays",
        _SYNCS,
        "---yy",
        "block_until_ready of several",
        "transfers",
        replaced=True,
    ),
    Name(
        "jax._src.api.xc.batched_block_until_ready",
        "the same, under its older name",
        _SYNCS,
        "yyyyy",
        "block_until_ready of several",
        "transfers",
        replaced=True,
    ),
    Name(
        "jax._src.lax.lax._convert_element_type",
        "the last step of jnp.array, which sends in C++",
        _TRANSFERS,
        group="last step of jnp.array",
        replaced=True,
    ),
    Name(
        "jax._src.lax.lax.stage",
        "the same since 0.10",
        _TRANSFERS,
        "---yy",
        "last step of jnp.array",
        replaced=True,
    ),
    *each(
        "jax._src.numpy.array_constructors:array(*)",
        "out object",
        "its data",
        _TRANSFERS,
        seen="--yyy",
        group="what jnp.array sends",
    ),
    *each(
        "jax._src.numpy.array:array(*)",
        "out object",
        "the same in 0.6",
        _TRANSFERS,
        seen="-y---",
        group="what jnp.array sends",
    ),
    *each(
        "jax._src.numpy.lax_numpy:array(*)",
        "out object",
        "the same, up to 0.4",
        _TRANSFERS,
        seen="y----",
        group="what jnp.array sends",
    ),
    Name(
        "jax._src.array:ArrayImpl.__array__",
        "np.asarray of an array",
        _HOW,
    ),
    Name("jax._src.api:_device_get", "jax.device_get", _HOW),
    Name("jax._src.api:block_until_ready.try_to_block", "jax.block_until_ready", _HOW),
    Name("jax._src.numpy.array_methods:_item", "x.item()", _HOW),
    *each(
        "jax._src.api:*",
        "device_put device_put_sharded device_put_replicated",
        "numbers sent on purpose",
        ("transfers of numbers",),
    ),
    *each(
        "jax._src.interpreters.*",
        "mlir partial_eval",
        "files that lower a program: its constants are not transfers",
        _FALSE,
    ),
    *each(
        "jax._src.*",
        "callback debugging",
        "files that run callbacks: their arrays are in host memory",
        _FALSE,
    ),
)
