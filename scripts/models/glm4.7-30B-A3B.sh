# GLM-4.7-Flash: latent attention, 64 experts
MODEL_NAME=GLM-4.7-Flash
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-47}"
  --hidden-size 2048
  --ffn-hidden-size 10240
  --num-attention-heads 20
  --vocab-size 154880
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
  --norm-epsilon 1e-5
)
