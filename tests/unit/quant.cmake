quarrel_test(quant_test LABEL unit
  SOURCES quant_types_test.cpp quant_half_test.cpp quant_decode_test.cpp quant_encode_test.cpp
  LINKS quarrel_quant)
