# Moonlight-16B-A3B: latent attention, 64 experts
MODEL_NAME=Moonlight-16B-A3B-Instruct
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-27}"
  --hidden-size 2048
  --ffn-hidden-size 11264
  --num-attention-heads 16
  --vocab-size 163840
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-50000}"
  --norm-epsilon 1e-5
)
