# GLM-5.2: as GLM-5, another rotary base
MODEL_NAME=GLM-5.2
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-78}"
  --hidden-size 6144
  --ffn-hidden-size 12288
  --num-attention-heads 64
  --vocab-size 154880
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-8000000}"
  --norm-epsilon 1e-5
)
