# Kernels that are one source for every vendor's GPUs (src/kernels/cuda/vendor/vendor.cuh), relative to src/kernels/cuda.
# The others need what only Hopper has:
#   products/{wide_product,batch_product,batch_product_mixed,gated_product}, experts/{expert_product,expert_codes,grouped_product}, fp8/{fp8_few,fp8_many,fp8_grouped}
#                               warpgroup matrix instructions (wgmma), tensor copies (TMA), mbarriers
#   products/narrow_product, fp8/fp8_narrow
#                               tensor copies, mbarriers; what adapters add to products (products/low_rank_addition.cuh,
#                               products/wide_product_addition.cuh) is in the pipelines of these and of the wide ones
#   latent/latent_attend        bulk copies that arrive at mbarriers, named barriers
#   experts/norm_route, sparse/choose_tokens, products/low_rank_hidden
#                               clusters of thread blocks, which read each other's shared memory
#   peers/peer_kernels          loads and stores at system scope by PTX, multimem
#   attention/attend_tiles_*, attention/attend_exact_*
#                               FlashInfer's tiles (cp.async and mma of its own)
# HIP's answers for them are in src/kernels/hip/absent_kernels.cpp.
set(slime_portable_kernels
    attention/apply_sinks attention/attend_decode attention/attend_plain attention/attend_rows attention/gather_pages attention/merge_records
    attention/norm_rotate delta/delta_gates delta/paged_delta experts/visits fp8/fp8_quantise latent/latent_plain
    latent/latent_products products/low_rank products/low_rank_down_many products/low_rank_many products/product_probe_rows
    products/skinny_linear rows/rows sampling/sample sampling/sample_truncated sparse/index_rows sparse/index_scores
    training/add_rows training/adamw training/rotate_backward training/rows_backward training/softmax)

# Unit tests run all of them on the CPU, compiled as C++ for the block executor (src/kernels/block_executor). A test compares this list
# with what is compared (src/kernels/cuda/vendor/kernel_cases_test.cpp).
function(slime_kernels_on_cpu)
  set(sources)
  foreach(name IN LISTS slime_portable_kernels)
    string(REPLACE "/" "_" unit ${name})
    set(source ${CMAKE_BINARY_DIR}/kernels_on_cpu/${unit}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"kernels/cuda/${name}.cu\"\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  add_library(slime_kernels_on_cpu OBJECT ${sources})
  target_link_libraries(slime_kernels_on_cpu PRIVATE slime_flags)
  target_compile_definitions(slime_kernels_on_cpu PRIVATE SLIME_KERNELS_ON_CPU)
  # Kernels read 16 bytes as eight numbers; products are rounded where the source says so. What there is to warn of, the
  # compilers of GPUs say.
  target_compile_options(slime_kernels_on_cpu PRIVATE -fno-strict-aliasing -ffp-contract=off -w)
  set_property(GLOBAL APPEND PROPERTY SLIME_TEST_OBJECTS slime_kernels_on_cpu)
endfunction()
