# MiMo-7B-RL; its layer that predicts further tokens is kept and not trained
MODEL_NAME=MiMo-7B-RL
MODEL_ARGS=(
  --num-layers "${MODEL_ARGS_NUM_LAYERS:-36}"
  --hidden-size 4096
  --ffn-hidden-size 11008
  --num-attention-heads 32
  --num-query-groups 8
  --vocab-size 151680
  --rotary-base "${MODEL_ARGS_ROTARY_BASE:-640000}"
  --norm-epsilon 1e-5
)
