# The client itself is tested where Arrow is: tests/flight.
quarrel_test(flight_address_test LABEL unit SOURCES flight_address_test.cpp LINKS quarrel_flight)
