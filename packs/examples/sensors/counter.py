"""A sensor that counts: the smallest that shows a cursor."""

from muster_client.sensors import Sensor


class Counter(Sensor):
    every_seconds = 60

    def poll(self) -> None:
        for number in range(self.cursor.get("next", 1), self.parameters["until"] + 1):
            self.send(
                "examples.counted",
                {"number": number},
                key=str(number),
                cursor={"next": number + 1},
            )
