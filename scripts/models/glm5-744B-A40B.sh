# GLM-5: latent attention with an indexer, 256 experts
MODEL_NAME=GLM-5
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-78}"
  --hidden-size 6144
  --ffn-hidden-size 12288
  --num-attention-heads 64
  --vocab-size 154880
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-5
)
