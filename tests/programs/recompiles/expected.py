"""Expected report of each case: the cause, and every difference as text."""

from __future__ import annotations


ANOTHER = (
    " (a different object: compared by identity; define __eq__ and __hash__ by value)"
)
DROPPED = "identical arguments were compiled before: {} evicted the program"

CAUSES: dict[str, dict[str, list[str]]] = {
    "shape": {
        "shape": ["argument x: float32[3] → float32[4]"],
        "shape_in_a_dict": ["argument batch['x']: float32[32,128] → float32[33,128]"],
        "shape_deep_inside": [
            "argument params['layers'][1]['w']: float32[2] → float32[3]"
        ],
        "shape_of_two_arguments": [
            "argument x: float32[3] → float32[4]",
            "argument y: float32[3] → float32[4]",
        ],
        "shape_of_another_rank": ["argument x: float32[] → float32[1]"],
        "shape_without_elements": ["argument x: float32[3,2] → float32[0,2]"],
        "shape_among_star_args": ["argument rest[1]: float32[3] → float32[4]"],
        "shape_of_an_argument_by_name": ["argument scale: float32[2] → float32[3]"],
        "shape_among_star_kwargs": ["argument b: float32[2] → float32[3]"],
        "shape_in_a_named_tuple": ["argument state.params: float32[2] → float32[3]"],
        "shape_in_a_class": ["argument model.weight: float32[2] → float32[3]"],
        "shape_in_a_class_without_names": ["argument pair[1]: float32[2] → float32[3]"],
        "shape_closest_to_an_older_one": ["argument y: float32[1] → float32[2]"],
        "shape_in_a_dataclass": ["argument x['a'][0].weight: float32[2] → float32[3]"],
        "shape_under_a_key_that_is_no_text": [
            "argument x[('a', 1)]: float32[1] → float32[2]"
        ],
        "shape_after_a_scan": ["argument xs: float32[3] → float32[4]"],
        "shape_inside_and_around": ["argument x: float32[3] → float32[4]"],
        "shape_of_a_function_with_a_gradient_of_its_own": [
            "argument x: float32[3] → float32[4]"
        ],
        "shape_on_another_thread": ["argument x: float32[3] → float32[4]"],
        "pmap_shape": ["argument batch['y']: float32[8,2] → float32[8,3]"],
    },
    "dtype": {
        "dtype": ["argument x: float32[3] → int32[3]"],
        "dtype_bfloat16": ["argument x: float32[3] → bfloat16[3]"],
        "dtype_and_shape": ["argument x: float32[3] → int32[4]"],
        "dtype_of_python_numbers": ["argument x: int32[] → float32[]"],
        "dtype_of_keys": ["argument key: uint32[2] → key<fry>[]"],
        "dtype_and_weak_type": ["argument x: weak type int32[] → float32[]"],
        "dtype_of_truth": ["argument x: bool[] → weak type int32[]"],
        "dtype_of_complex_numbers": ["argument x: float32[] → complex64[]"],
        "dtype_of_keys_of_another_kind": ["argument key: key<fry>[] → key<rbg>[]"],
    },
    "weak_type": {
        "weak_type": ["argument x: weak type float32 → float32"],
        "weak_type_now": ["argument rate: int32 → weak type int32"],
        "weak_type_of_a_number_of_numpy": ["argument x: weak type float32 → float32"],
    },
    "static_argument": {
        "static_number": ["static argument n: 3 → 4"],
        "static_name": ["static argument mode: 'train' → 'eval'"],
        "static_numbers_of_one_hash": ["static argument axis: -1 → -2"],
        "static_left_out": ["static argument n: not given → 2"],
        "static_tuple": ["static argument sizes: (2, 3) → (3, 2)"],
        "static_of_another_type": ["static argument flag: True → 1"],
        "static_lambda": [
            (
                "static argument activation: <lambda> at FILE:LINE → <lambda> at "
                "FILE:LINE"
            )
            + ANOTHER
        ],
        "static_object": [
            "static argument config: Config(size=2) → Config(size=2)" + ANOTHER
        ],
        "static_dataclass": [
            (
                "static argument options: Options(size=2, name='net') → "
                "Options(size=4, name='net')"
            )
        ],
        "static_enum": ["static argument color: Color.RED → Color.BLUE"],
        "static_object_with_an_array": [
            (
                "static argument holder: Holder(values=float64[3]) → "
                "Holder(values=float64[3])"
            )
            + ANOTHER
        ],
        "static_text_too_long": [
            f"static argument text: '{'a' * 78}… → '{'b' * 78}…",
        ],
        "static_partial": [
            (
                "static argument fun: partial(scaled at FILE:LINE, 3) → partial(scaled "
                "at FILE:LINE, 3)"
            )
            + ANOTHER
        ],
        "static_self": [
            "static argument self: Model(size=2) → Model(size=2)" + ANOTHER
        ],
        "static_not_a_number": ["static argument s: nan → another nan"],
        "static_number_of_numpy": ["static argument s: 3 → np.int64(3)"],
        "static_dtype": ["static argument s: dtype('float32') → dtype('int32')"],
        "static_none": ["static argument s: None → 3"],
        "static_set": ["static argument s: frozenset({1}) → frozenset({2})"],
        "static_function": [
            "static argument s: scaled at FILE:LINE → static at FILE:LINE"
        ],
        "static_mesh": ["static argument s: mesh d=8 → mesh a=2,b=4"],
        "static_class": ["static argument cls: Model → Larger"],
        "static_counted_from_the_end": ["static argument n: 3 → 4"],
        "pmap_static": ["static argument n: 2 → 3"],
    },
    "tree_structure": {
        "static_by_name_now": ["static argument n: by position → by name"],
        "key_added": ["argument x: key 'mask' added"],
        "key_removed": ["argument x: keys 'a', 'c' removed"],
        "key_renamed": ["argument x['x']: key 'b' added, key 'a' removed"],
        "key_added_and_a_shape": [
            "argument x: key 'b' added",
            "argument x['z']: float32[1] → float32[9]",
        ],
        "leaf_became_none": ["argument x['mask']: float32[2] → None"],
        "none_became_a_leaf": ["argument x[1]: None → float32[2]"],
        "tuple_longer": ["argument x: tuple of 2 → tuple of 3"],
        "list_became_tuple": ["argument x: list of 2 → tuple of 2"],
        "leaf_became_a_dict": ["argument x['w']: float32[1] → dict of 2"],
        "ordered_dict_became_a_dict": ["argument x: OrderedDict → dict of 1"],
        "static_part_of_a_class": [
            "argument x: static part 'relu' → static part 'gelu'"
        ],
        "class_defined_again": [
            (
                "argument x: class "
                "class_defined_again.<locals>.point.<locals>.Point → a different "
                "class class_defined_again.<locals>.point.<locals>.Point"
            )
        ],
        "argument_given": ["argument mask: not given → float32[3]"],
        "argument_by_name_now": ["argument y: by position → by name"],
        "named_tuple_became_a_tuple": ["argument x: State → tuple of 2"],
        "ordered_dict_in_another_order": ["argument x: keys 'a', 'b' → keys 'b', 'a'"],
        "ordered_dict_with_another_key": ["argument x: key 'b' added"],
        "default_dict_with_another_default": [
            "argument x: static part int → static part list"
        ],
        "static_field_of_a_dataclass": [
            "argument x[0]: static part ('a',) → static part ('b',)"
        ],
        "none_became_an_empty_tuple": ["argument x[1]: None → tuple of 0"],
        "key_that_is_a_number": ["argument x: key 2 added, key 1 removed"],
        "tuple_shorter_and_a_shape": [
            "argument x: tuple of 3 → tuple of 2",
            "argument x[1]: float32[2] → float32[9]",
        ],
        "default_given": ["argument n: not given → int32[]"],
        "star_args_longer": ["argument xs[1]: not given → float32[3]"],
        "star_kwargs_longer": ["argument b: not given → float32[3]"],
    },
    "committed": {
        "committed": ["argument x: uncommitted → committed to cpu:1"],
        "committed_no_more": ["argument x: committed to cpu:0 → uncommitted"],
        "committed_by_a_result": ["argument x: uncommitted → committed to cpu:0"],
    },
    "sharding": {
        "device": ["argument x: cpu:0 → cpu:1"],
        "device_of_one_argument": ["argument batch['x']: cpu:2 → cpu:3"],
        "sharding": ["argument x: P('d') on mesh d=8 → P() on mesh d=8"],
        "sharding_of_another_axis": [
            "argument x: P('d') on mesh d=8 → P(None, 'd') on mesh d=8"
        ],
        "sharding_on_another_mesh": [
            "argument x: P('d') on mesh d=8 → P('a', 'b') on mesh a=2,b=4"
        ],
        "sharding_from_one_device": [
            "argument x: uncommitted → committed to P('d') on mesh d=8"
        ],
        "mesh_in_another_order": [
            (
                "argument x: P('d') on mesh d=8 → P('d') on mesh d=8 (different "
                "devices, or a different order)"
            )
        ],
        "mesh_of_other_devices": [
            (
                "argument x: P('d') on mesh d=4 → P('d') on mesh d=4 (different "
                "devices, or a different order)"
            )
        ],
        "mesh_of_fewer_devices": [
            "argument x: P('d') on mesh d=8 → P('d') on mesh d=4"
        ],
        "mesh_with_axes_in_the_type": [
            "argument x: P('d') on mesh d=8 → P('d') on mesh d=8 explicit"
        ],
        "memory_of_one_device": ["argument x: cpu:0 → cpu:0 in unpinned_host"],
        "memory_of_a_mesh": [
            ("argument x: P('d') on mesh d=8 → P('d') on mesh d=8 in unpinned_host")
        ],
        "memory_and_devices": [
            (
                "argument x: P('d') on mesh d=8 → P('d') on mesh d=8 in "
                "unpinned_host (different devices, or a different order)"
            )
        ],
        "mesh_of_one_device": ["argument x: cpu:0 → cpu:0 on mesh d=1"],
    },
    "context": {
        "x64": ["jax_enable_x64: False → True"],
        "x64_and_what_follows": [
            "jax_enable_x64: False → True",
            "argument x: float32[] → float64[]",
        ],
        "matmul_precision": ["jax_default_matmul_precision: None → highest"],
        "rank_promotion": ["jax_numpy_rank_promotion: allow → raise"],
        "dtype_promotion": ["jax_numpy_dtype_promotion: standard → strict"],
        "default_device": ["jax_default_device: None → cpu:2"],
        "x64_for_a_while": ["jax_enable_x64: False → True"],
        "precision_for_a_while": ["jax_default_matmul_precision: None → float32"],
        "random_bits": ["jax_threefry_partitionable: False → True"],
        "metadata_around": ["xla_metadata_context_manager: None → {'a': 'b'}"],
        "other_metadata_around": [
            "xla_metadata_context_manager: {'a': 'b'} → {'a': 'c', 'd': 'e'}"
        ],
        "mesh_around": ["mesh_context_manager: None → (mesh d=8,)"],
        "mesh_of_other_devices_around": [
            (
                "mesh_context_manager: (mesh d=8,) → (mesh d=8,) (different "
                "devices, or a different order)"
            )
        ],
        "mesh_set": ["abstract_mesh_context_manager: None → mesh d=8"],
        "another_mesh_set": ["abstract_mesh_context_manager: mesh a=8 → mesh b=8"],
    },
    "options": {
        "donated": ["jit option donated arguments: none → x"],
        "output_sharding": ["jit option out_shardings: none → P('d') on mesh d=8"],
        "donated_no_more": ["jit option donated arguments: x → none"],
        "donated_another": ["jit option donated arguments: x → y"],
        "input_shardings": [
            "jit option in_shardings: P('d') on mesh d=8 → P() on mesh d=8"
        ],
        "options_of_the_compiler": [
            "jit option compiler_options: none → ('xla_embed_ir_in_executable', True)"
        ],
        "device_of_jit": ["jit option device: none → cpu:1"],
        "backend_of_jit": ["jit option backend: none → 'cpu'"],
        "output_in_another_memory": [
            (
                "jit option out_shardings: P('d') on mesh d=8 → P('d') on mesh d=8 in "
                "unpinned_host"
            )
        ],
        "input_shardings_on_other_devices": [
            (
                "jit option in_shardings: P('d') on mesh d=8 → P('d') on mesh d=8 "
                "(different devices, or a different order)"
            )
        ],
        "output_layout": [
            (
                "jit option out_layouts: Layout(major_to_minor=(0, 1), tiling=None, "
                "sub_byte_element_size_in_bits=0) → Layout(major_to_minor=(1, 0), "
                "tiling=None, sub_byte_element_size_in_bits=0)"
            )
        ],
        "pmap_another_axis_out": ["jit option out_axes: none → 1"],
        "pmapped_then_jitted": ["transformation: jax.pmap → jax.jit"],
        "jitted_then_pmapped": ["transformation: jax.jit → jax.pmap"],
        "pmap_axis_name": ["jit option axis_name: none → 'i'"],
        "pmap_another_axis": ["jit option in_axes: none → 1"],
        "pmap_devices": ["jit option devices: (cpu:0, cpu:1) → (cpu:2, cpu:3)"],
        "pmap_donated": ["jit option donated arguments: none → (0,)"],
    },
    "new_function": {
        "new_lambda": [
            "a new function object at FILE:LINE, `<lambda>`: jit outside the loop"
        ],
        "new_lambda_and_a_shape": [
            "a new function object at FILE:LINE, `<lambda>`: jit outside the loop",
            "argument x: float32[3] → float32[4]",
        ],
        "new_partial": [
            (
                "a new partial at FILE:LINE, `scaled`: create the partial once, "
                "outside the loop"
            )
        ],
        "new_closure": [
            (
                "a new function object at FILE:LINE, `step`: make recreates and "
                "jits it each time; it captures factor"
            )
        ],
        "jit_inside_a_method": [
            (
                "a new function object at FILE:LINE, `step`: Model.jits_inside "
                "recreates and jits it each time; it captures self"
            )
        ],
        "new_bound_method": [
            (
                "a new bound method at FILE:LINE, `Model.plain`: jit the method "
                "once, not on each use"
            )
        ],
        "new_pmapped_lambda": [
            "a new function object at FILE:LINE, `<lambda>`: jit outside the loop"
        ],
        "jit_of_a_gradient": [
            "a new wrapper of a function at FILE:LINE, `squares`: wrap and jit it once"
        ],
        "jit_of_a_decorated_function": [
            "a new wrapper of a function at FILE:LINE, `squares`: wrap and jit it once"
        ],
        "jit_of_a_jitted_function": [
            "a new jit at FILE:LINE, `f`: it is already jitted; call it directly"
        ],
        "new_object_that_can_be_called": [
            "a new object, `Model`: create and jit it once"
        ],
        "bound_method_of_one_object": [
            (
                "a new bound method at FILE:LINE, `Model.plain`: jit the method "
                "once, not on each use"
            )
        ],
        "partial_with_another_value": [
            (
                "a new partial at FILE:LINE, `scaled`: create the partial once, "
                "outside the loop"
            )
        ],
        "new_closure_over_arrays": [
            (
                "a new function object at FILE:LINE, `<lambda>`: jit outside the loop; "
                "it captures batch"
            )
        ],
        "gradient_of_a_new_closure": [
            (
                "a new wrapper of a function at FILE:LINE, `loss`: wrap and jit it "
                "once; it captures factor"
            )
        ],
        "equal_functions_that_both_exist": [
            "a new function object at FILE:LINE, `<lambda>`: jit outside the loop"
        ],
        "model_jitted_by_each_request": [
            (
                "a new bound method at FILE:LINE, `Model.plain`: jit the method "
                "once, not on each use"
            )
        ],
        "defined_again": ["a new function object at <string>:1, `f`: it was redefined"],
    },
    "evicted": {
        "caches_cleared": [DROPPED.format("jax.clear_caches()")],
        "function_cleared": [DROPPED.format("clear_cache() or a full cache")],
    },
}

CASES = {
    name: (cause, texts)
    for cause, cases in CAUSES.items()
    for name, texts in cases.items()
}

TRANSFORMED = {
    "derivatives": (2, "shape"),
    "gradients_of_closures": (4, "new_function"),
    "gradients_of_shapes": (4, "shape"),
    "gradients_of_static_arguments": (4, "static_argument"),
    "gradients_of_unrolled_loops": (4, "shape"),
    "gradients_of_what_was_dropped": (2, "evicted"),
    "gradients_with_checkpoints": (6, "shape"),
    "gradients_with_rules_of_their_own": (4, "shape"),
    "linearized": (4, "shape"),
    "mapped_closures": (2, "new_function"),
    "mapped_over_sizes": (2, "shape"),
}
"""Cases under transformations: how often JAX compiles again, and why."""

SEVERAL = {"shapes_then_shardings": 3 * ["shape"] + 4 * ["sharding"]}
"""Cases of several recompiles, and why each happens."""

NONE = {
    "ahead_of_time": 1,
    "called_as_compiled_ahead_of_time": 0,
    "called_at_once": 1,
    "dict_in_another_order": 0,
    "effects": 0,
    "equal_mesh": 0,
    "equal_static_value": 0,
    "exported": 0,
    "first_call": 1,
    "function_and_its_gradient": 1,
    "functions_from_one_helper": 2,
    "gradient_at_two_places": 1,
    "gradients_of_several_models": 8,
    "gradients_of_two_functions": 1,
    "gradients_of_functions_in_a_list": 3,
    "jitted_function_jitted_again": 1,
    "lambda_of_a_factory": 1,
    "models_in_a_list": 7,
    "models_jitted_on_the_spot": 7,
    "models_that_jit_a_closure": 7,
    "transformations_of_one_loss": 6,
    "jitted_twice": 0,
    "many_transformations": 18,
    "mapped": 1,
    "names_in_another_order": 0,
    "numpy_in_place_of_jax": 0,
    "pmapped_twice": 0,
    "refused": 0,
    "shapes_then_shardings_again": 0,
    "transformed": 3,
    "two_lambdas_of_one_line": 1,
}
"""Cases that are no recompile, and how often JAX compiles in them."""

SINCE = {
    "another_mesh_set": (0, 7),
    "memory_and_devices": (0, 8),
    "memory_of_a_mesh": (0, 8),
    "memory_of_one_device": (0, 8),
    "metadata_around": (0, 8),
    "mesh_of_one_device": (0, 5),
    "mesh_set": (0, 7),
    "mesh_with_axes_in_the_type": (0, 5),
    "options_of_the_compiler": (0, 5),
    "other_metadata_around": (0, 8),
    "output_in_another_memory": (0, 10),
    "output_layout": (0, 10),
}
"""Cases that earlier releases of JAX have not got."""
